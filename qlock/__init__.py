"""qlock: a lockfile for measurements of quantized language models.

Example:
    >>> from qlock.core.digest import blake3_of
    >>> blake3_of(b"")[:15]
    'blake3:af1349b9'
"""

__version__ = "0.1.0"
