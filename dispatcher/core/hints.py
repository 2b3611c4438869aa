"""What a callee says about when to come back. This module reads `Retry-After` in seconds; other forms come with the issue on hints."""

from __future__ import annotations

import re

from dispatcher.core.call import HeaderPairs

# RFC 9110 §10.2.3 gives delay-seconds as digits; decimals are met in the wild (LiteLLM and Portkey cut them to whole seconds).
SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


def retry_after_s(headers: HeaderPairs) -> float | None:
    """Seconds to wait as the answer says, None where it says nothing that we understand. The last header counts."""
    told = None
    for name, text in headers:
        if name == "retry-after" and SECONDS.fullmatch(text.strip()):
            told = float(text)
    return told
