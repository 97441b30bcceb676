"""Who may come in: whoever has the token, under a name that is this machine's own."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
from email.message import Message
from http.cookies import CookieError, SimpleCookie

CHANGE = "Holter-Change"  # a header: only a page of ours can send it


class Auth:
    """Checks the Host of a request and its token.

    The Host is checked so that a page elsewhere can't rebind its own name to this address and read along: a request
    must name an address, localhost, this machine's name or the host that was asked for.
    """

    def __init__(self, host: str, token: str = "") -> None:
        self.token = token or secrets.token_urlsafe(24)
        self._names = {"localhost", host.lower(), socket.gethostname().lower()}
        self._cookie = "holter"

    def at(self, port: int) -> None:
        """Cookies know no ports: two servers on one machine keep theirs apart by name."""
        self._cookie = f"holter-{port}"

    def knows_host(self, header: str | None) -> bool:
        name = (header or "").strip().lower()
        if name.startswith("["):
            name = name[1:].partition("]")[0]
        elif name.count(":") <= 1:
            name = name.partition(":")[0]
        try:
            ipaddress.ip_address(name)
            return True
        except ValueError:
            return name in self._names

    def is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode("utf-8", "replace"), self.token.encode())

    def has_cookie(self, header: str | None) -> bool:
        try:
            found = SimpleCookie(header or "").get(self._cookie)
        except CookieError:
            return False
        return found is not None and self.is_token(found.value)

    def has_bearer(self, header: str | None) -> bool:
        """For a program that collects numbers, and keeps no cookies."""
        kind, _, given = (header or "").partition(" ")
        return kind.lower() == "bearer" and self.is_token(given.strip())

    def may_change(self, headers: Message) -> bool:
        """Tell whether a request that changes something is of our own page, or of a program that has the token.

        The cookie alone will not do: a browser sends it along for any page on this machine, whatever its port. Such a
        page can't add a header of its own without being asked first who it is, and its origin is another.
        """
        if self.has_bearer(headers.get("Authorization")):
            return True
        own = (headers.get("Origin") or "").partition("://")[2]
        return self.has_cookie(headers.get("Cookie")) and CHANGE in headers and own == (headers.get("Host") or "")

    def cookie(self) -> str:
        return f"{self._cookie}={self.token}; HttpOnly; SameSite=Lax; Path=/"
