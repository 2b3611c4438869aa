"""Which addresses count as private: the table that keeps messages away from a network's inside."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dispatcher.adapters.http.addresses import is_private

PRIVATE = (
    *("127.0.0.1", "127.255.255.254", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254"),
    *("100.64.0.1", "100.127.255.255", "0.0.0.0", "0.1.2.3", "192.0.2.1", "198.18.0.1", "224.0.0.1", "240.0.0.1"),  # noqa: S104 - private
    *("255.255.255.255", "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12::1", "fec0::1", "ff02::1", "2001:db8::1"),
    *("::ffff:10.0.0.1", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "2002:7f00:1::", "nonsense"),
)
PUBLIC = ("1.1.1.1", "8.8.8.8", "172.32.0.1", "100.128.0.1", "::ffff:8.8.8.8", "64:ff9b::808:808", "2606:4700::1111")


@pytest.mark.parametrize("address", PRIVATE)
def test_private(address: str) -> None:
    """Loopback, private, link-local, shared, reserved, multicast, unspecified, in every wrapping; and what is no address."""
    assert is_private(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_public(address: str) -> None:
    """Public addresses pass, wrapped ones too."""
    assert not is_private(address)


@given(st.ip_addresses(v=4))
def test_wrapping_changes_nothing(address: ipaddress.IPv4Address) -> None:
    """An IPv4 address is judged alike bare, mapped into IPv6 and behind NAT64."""
    assert is_private(str(address)) == is_private(f"::ffff:{address}") == is_private(f"64:ff9b::{address}")
