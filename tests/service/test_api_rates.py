"""Moving windows of a minute, by a clock of our own."""

from __future__ import annotations

import pytest

from cudaops.service.auth import RateLimiter, ServiceOptions, address_key
from cudaops.service.problems import Refused


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_window_moves_and_each_caller_has_its_own() -> None:
    clock = Clock()
    rates = RateLimiter(ServiceOptions(version="0", reads_per_minute=2), clock)
    rates.count("read", "ann")
    clock.now += 30
    rates.count("read", "ann")
    rates.count("read", "bob")
    rates.count("submit", "ann")
    with pytest.raises(Refused) as refused:
        rates.count("read", "ann")
    assert refused.value.headers == {"Retry-After": "30"}
    clock.now += 30
    rates.count("read", "ann")
    with pytest.raises(Refused):
        rates.count("read", "ann")


def test_who_has_not_asked_for_a_minute_is_forgotten() -> None:
    clock = Clock()
    rates = RateLimiter(ServiceOptions(version="0"), clock)
    for number in range(100):
        rates.count("read", f"address:10.0.0.{number}")
    clock.now += 61
    rates.count("read", "ann")
    assert len(rates._times) == 1


def test_no_limit_counts_nothing() -> None:
    rates = RateLimiter(ServiceOptions(version="0", reads_per_minute=0))
    for _ in range(1000):
        rates.count("read", "ann")


def test_an_ipv6_network_is_one_caller() -> None:
    assert address_key("2001:db8::1") == address_key("2001:db8::ffff") != address_key("2001:db9::1")
    assert address_key("10.0.0.1") != address_key("10.0.0.2")
    assert address_key(None) == address_key("odd")
