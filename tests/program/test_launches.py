"""Launches as they stand in a text."""

from __future__ import annotations

import pytest

from cudaops.program.launches import launches_in_a_loop


@pytest.mark.parametrize(
    ("host", "repeats"),
    [
        ("k<<<1, 1>>>();", False),
        ("for (int i = 0; i < n; i++) h[i] = i; k<<<1, 1>>>();", False),
        ("if (n) { k<<<1, 1>>>(); }", False),
        ("for (int i = 0; i < n; i++) k<<<1, 1>>>();", True),
        ("while (n--) { if (n % 2) k<< <1, 1>>>(); }", True),
        ("do { k<<<1, 1>>>(); } while (n--);", True),
        ('// for (;;) {\n puts("for (;;) {"); k<<<1, 1>>>();', False),
    ],
)
def test_whether_a_launch_stands_in_a_loop(host: str, repeats: bool) -> None:
    assert launches_in_a_loop(f"int main() {{ {host} }}") is repeats
