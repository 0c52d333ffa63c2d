"""A small sample of the suite `kld` for the contract of suites."""

PARAMS: dict[str, object] = {"text": "file:text", "window_tokens": 8, "windows": 2}
DATA = {"text": b"the quick brown fox"}
