"""Wrapper that changes the user if one is given, ties its life to its parent's, then executes the program.

Run as a script, with the standard library only: `exit_with_parent.py PARENT SIGNAL UID GID PROGRAM [ARGUMENT ...]`.
SIGNAL is what the kernel sends the child when PARENT dies. It is set after the change of user, which would clear it.
"""

import ctypes
import os
import sys

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Never returns: the process becomes the program, or ends with 127 if the parent has already ended."""
    parent, signal_number, uid, gid = (int(text) for text in arguments[:4])
    command = arguments[4:]
    if uid >= 0 and os.geteuid() != uid:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(127)
    os.execv(command[0], command)  # noqa: S606


if __name__ == "__main__":
    main(sys.argv[1:])
