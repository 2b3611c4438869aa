"""Classes of requests: each has a request topic of its own, and its share of every lane."""

from typing import Annotated

from pydantic import Field

from dispatcher.settings.section import Count, Section

# As a part of a topic's name.
ClassName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,31}$")]


class ClassSettings(Section):
    """What a class has of a lane in which others wait as well."""

    # So many turns for one of a class of weight 1.
    weight: Annotated[float, Field(ge=0.001, le=1000)] = 1
    # Calls of this class at once, in one worker. Unset: as many as the worker may make.
    concurrency: Count | None = None
