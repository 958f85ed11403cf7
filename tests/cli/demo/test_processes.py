"""Which processes there are."""

from __future__ import annotations

import os
import subprocess
import sys

from acphold.cli.demo.processes import family, running

CHILD = "print(1, flush=True); input()"
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {CHILD!r}])"


def test_a_family_is_a_process_and_its_descendants_as_long_as_they_run() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        found = family(parent.pid)
        assert len(found) == 2
        assert parent.pid in found
        assert found < family(os.getpid())
        assert running(found) == found
        parent.communicate(b"\n")
    assert running(found) == set()


def test_one_that_has_ended_and_was_not_reaped_does_not_run() -> None:
    with subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert running({child.pid}) == set()
        assert family(child.pid) == set()
