"""asyncio that imports `ssl` only when somebody speaks TLS."""

from __future__ import annotations

import subprocess
import sys
import textwrap


def _run(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_asyncio_runs_without_ssl_having_been_imported() -> None:
    program = """
        import sys
        from acp_wire.transports.late_tls import load_asyncio
        load_asyncio()
        import asyncio
        asyncio.run(asyncio.sleep(0))
        print("ssl" in sys.modules, "_ssl" in sys.modules)
    """
    assert _run(program) == "False False"


def test_tls_through_asyncio_works_once_it_is_asked_for() -> None:
    program = """
        from acp_wire.transports.late_tls import load_asyncio
        load_asyncio()
        import asyncio, ssl

        def context(side):
            made = ssl.SSLContext(side)
            made.check_hostname = False
            made.verify_mode = ssl.CERT_NONE
            made.maximum_version = ssl.TLSVersion.TLSv1_2
            made.set_ciphers("AECDH-AES256-SHA:@SECLEVEL=0")  # needs no certificate
            return made

        async def echo(reader, writer):
            writer.write(await reader.readline())
            writer.close()

        async def main():
            server = await asyncio.start_server(
                echo, "127.0.0.1", 0, ssl=context(ssl.PROTOCOL_TLS_SERVER)
            )
            port = server.sockets[0].getsockname()[1]
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, ssl=context(ssl.PROTOCOL_TLS_CLIENT)
            )
            writer.write(b"over TLS\\n")
            print((await reader.readline()).decode())
            writer.close()
            server.close()

        asyncio.run(asyncio.wait_for(main(), 20))
    """
    assert _run(program) == "over TLS"


def test_asyncio_is_afterwards_as_it_is_when_it_imports_ssl_itself() -> None:
    program = """
        import asyncio.sslproto
        from acp_wire.transports.late_tls import load_asyncio
        load_asyncio()
        asyncio.sslproto.ssl.SSLSocket
        import sys
        names = ("sslproto", "base_events", "selector_events")
        modules = [sys.modules[f"asyncio.{name}"] for name in names]
        print(sorted(vars(modules[0])), *(module.ssl.__name__ for module in modules[:2]))
    """
    late = "from acp_wire.transports.late_tls import load_asyncio\nload_asyncio()\n"
    assert _run(late + textwrap.dedent(program)) == _run(program)


def test_an_ssl_that_is_imported_already_is_used_at_once() -> None:
    program = """
        import ssl
        from acp_wire.transports.late_tls import load_asyncio
        load_asyncio()
        import asyncio.sslproto
        print(asyncio.sslproto.ssl is ssl)
    """
    assert _run(program) == "True"
