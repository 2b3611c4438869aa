"""Which addresses an upstream may live at. The check is made on the address that is connected to, so DNS cannot lie about it."""

from __future__ import annotations

import asyncio
import ipaddress
import socket

# RFC 6052: the well-known prefix of NAT64, whose last four bytes are an IPv4 address.
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class AddressRefused(OSError):
    """The only addresses found are private, and the upstream does not allow them. An OSError, since connecting raises it."""


def is_private(address: str) -> bool:
    """Tell whether a literal address is anything but a public unicast one.

    That is: loopback, private, link-local (cloud metadata at 169.254.169.254), carrier-grade NAT, unspecified, multicast,
    reserved; and an IPv6 address that embeds such an IPv4 one (mapped, 6to4, Teredo, NAT64).
    """
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return True  # an address that we cannot judge is not connected to
    carried = _carried(ip) if isinstance(ip, ipaddress.IPv6Address) else None
    if carried is not None:
        ip = carried
    return not ip.is_global or ip.is_multicast or ip.is_reserved or (isinstance(ip, ipaddress.IPv6Address) and ip.is_site_local)


def _carried(ip: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """Give the IPv4 address inside an IPv6 one, where there is one."""
    if ip in _NAT64:
        return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)


async def lookup(host: str, port: int, *, allow_private: bool) -> tuple[str, ...]:
    """Resolve a name to the addresses that may be connected to, in the system's order. Raises OSError, AddressRefused."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = tuple(dict.fromkeys(str(info[4][0]) for info in found))
    allowed = addresses if allow_private else tuple(address for address in addresses if not is_private(address))
    if not allowed:
        raise AddressRefused("private address")
    return allowed
