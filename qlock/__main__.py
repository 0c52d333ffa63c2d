"""``python -m qlock``: the same as ``qlock``."""

from __future__ import annotations

from qlock.cli.main import main

raise SystemExit(main())
