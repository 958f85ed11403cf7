"""asyncio that imports `ssl` only when somebody speaks TLS, and others when they are needed."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path


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
        from acphold.machine.late_tls import load_asyncio
        old = type("Old", (), {"find_module": lambda *_: None})  # it has no `find_spec`
        sys.meta_path.insert(0, old())
        load_asyncio()
        import asyncio, socket

        async def main():
            ours, theirs = socket.socketpair()
            ours.setblocking(False)
            theirs.send(b"x")
            await asyncio.get_running_loop().sock_recv(ours, 1)

        asyncio.run(main())
        print("ssl" in sys.modules, "_ssl" in sys.modules)
    """
    assert _run(program) == "False False"


def test_tls_through_asyncio_works_once_it_is_asked_for() -> None:
    program = """
        from acphold.machine.late_tls import load_asyncio
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
        from acphold.machine.late_tls import load_asyncio
        load_asyncio()
        asyncio.sslproto.ssl.SSLContext
        import sys
        names = ("sslproto", "base_events", "selector_events")
        modules = [sys.modules[f"asyncio.{name}"] for name in names]
        print(sorted(vars(modules[0])), *(module.ssl.__name__ for module in modules[:2]))
    """
    late = "from acphold.machine.late_tls import load_asyncio\nload_asyncio()\n"
    assert _run(late + textwrap.dedent(program)) == _run(program)


LATE = """
import signal, sys
from acphold.machine.late_tls import load_asyncio
load_asyncio()
import asyncio

def late():
    return sorted({"inspect", "subprocess", "tokenize"} & {*sys.modules})
"""


def _run_late(program: str) -> str:
    return _run(LATE + textwrap.dedent(program))


def test_a_loop_with_signal_handlers_tasks_and_sockets_needs_no_module_that_is_left_out() -> None:
    program = """
        async def main():
            ended = asyncio.Event()
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.wait_for(ended.wait(), 20))
                signal.raise_signal(signal.SIGTERM)
            (await asyncio.start_server(print, "127.0.0.1", 0)).close()
            print(late())

        asyncio.run(main())
    """
    assert _run_late(program) == "[]"


def test_a_coroutine_function_is_refused_as_a_signal_handler() -> None:
    program = """
        async def main():
            try:
                asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, main)
            except TypeError as error:
                print(error, late())

        asyncio.run(main())
    """
    assert _run_late(program) == "coroutines cannot be used with add_signal_handler() []"


def test_what_was_left_out_is_there_once_it_is_used() -> None:
    program = """
        async def main():
            program = await asyncio.create_subprocess_exec("true")
            assert asyncio.iscoroutinefunction(main)
            asyncio.ensure_future(Awaitable())
            print(await program.wait(), late())
            users = [asyncio.base_events.subprocess, asyncio.unix_events.subprocess]
            assert {*users} == {sys.modules["subprocess"]}
            assert asyncio.coroutines.inspect is asyncio.tasks.inspect is sys.modules["inspect"]

        class Awaitable:
            def __await__(self):
                yield

        asyncio.run(main())
    """
    assert _run_late(program) == "0 ['inspect', 'subprocess', 'tokenize']"


def test_of_msgspec_all_is_there_once_it_is_used() -> None:
    program = """
        import sys
        from acphold.machine.late_tls import load_msgspec
        load_msgspec()
        import msgspec
        late = ["msgspec.inspect", "msgspec.toml", "msgspec.yaml"]
        before = [name for name in late if name in sys.modules]
        print(before, msgspec.json.schema(int), msgspec.toml.decode(b"a = 1"))
        import msgspec.yaml
        print(msgspec.yaml is sys.modules["msgspec.yaml"], msgspec.inspect.type_info(str))
    """
    lines = _run(program).splitlines()
    assert lines[0] == "[] {'type': 'integer'} {'a': 1}"
    assert lines[1].startswith("True StrType(")


def test_a_traceback_has_its_lines(tmp_path: Path) -> None:
    failing = tmp_path / "failing.py"
    failing.write_text("def fail():\n    raise ValueError('on purpose')\n")
    program = f"""
        import traceback
        sys.path.insert(0, {str(tmp_path)!r})
        import failing
        assert late() == []
        try:
            failing.fail()
        except ValueError:
            print(traceback.format_exc())
    """
    assert "raise ValueError('on purpose')" in _run_late(program)


def test_what_was_imported_already_is_used_at_once() -> None:
    program = """
        import inspect, ssl, subprocess
        from acphold.machine.late_tls import load_asyncio
        load_asyncio()
        import asyncio.sslproto
        print(asyncio.coroutines.inspect is inspect, asyncio.base_events.subprocess is subprocess)
        print(asyncio.sslproto.ssl is ssl)
    """
    assert _run(program) == "True True\nTrue"


def test_asyncio_has_the_constants_of_subprocess() -> None:
    program = """
        early = asyncio.subprocess.PIPE, asyncio.subprocess.STDOUT, asyncio.subprocess.DEVNULL
        assert late() == []
        import subprocess
        print(early == (subprocess.PIPE, subprocess.STDOUT, subprocess.DEVNULL))
    """
    assert _run_late(program) == "True"
