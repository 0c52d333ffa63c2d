"""``python -m qlock``, and what the command ``qlock`` calls."""

from __future__ import annotations

import signal


def main() -> int:
    """Run the command line of this process; gives its exit code."""
    # Before anything slow is imported: Ctrl-C in the middle of that would end in a traceback. `cli.main` lets it in.
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    from qlock.cli.main import main as run

    return run()


if __name__ == "__main__":
    raise SystemExit(main())
