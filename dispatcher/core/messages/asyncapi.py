"""The AsyncAPI document: channels, operations and messages of the dispatcher as seen by the dispatcher itself.

`make schemas` writes it to schemas/asyncapi.yaml. It points to request.schema.json and reply.schema.json beside it.
"""

from __future__ import annotations

from typing import Any

from dispatcher.core.messages.message_headers import dead_letter_headers, reply_headers, request_headers
from dispatcher.core.messages.request import KEY_MAX_BYTES
from dispatcher.settings import TopicSettings

ASYNCAPI = "3.1.0"
# The messages' own: its major number is the one in their types, dispatcher.request.v1 and dispatcher.reply.v1.
MESSAGES_VERSION = "1.0.0"
KAFKA_BINDING = "0.5.0"
JSON_SCHEMA = "application/schema+json;version=draft-2020-12"
DAY_MS = 86_400_000
Document = dict[str, Any]


def asyncapi_document() -> Document:
    """The document, with the default names, sizes and partition counts of the topics."""
    return {
        "asyncapi": ASYNCAPI,
        "info": _info(),
        "defaultContentType": "application/json",
        "channels": _channels(TopicSettings()),
        "operations": _operations(),
        "components": {"messages": {"request": _request(), "reply": _reply(), "deadLetter": _dead_letter()}},
    }


def _info() -> Document:
    return {
        "title": "dispatcher",
        "version": MESSAGES_VERSION,
        "description": (
            "Requests are records keyed by what they contend for. The calls of one partition are made one after another, in order. Every "
            "execution ends with one reply, and with a dead letter as well where it was given up. "
            "A request that is sent again under its key and id (ce_id) within the dedup window is answered as the first one was, without a "
            "call; the same id with another call under it is a dead letter, id_conflict. Ids of different keys have nothing to do with "
            "each other. "
            "Producers are idempotent and use the partitioner murmur2_random. Readers of replies use the isolation level read_committed. "
            "The document describes the dispatcher: what it receives, you send."
        ),
        "license": {"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
    }


def _channels(topics: TopicSettings) -> Document:
    return {
        "requests": _channel("requests", "request", "what to call", topics, topics.request_max_bytes, topics.request_retention_days),
        "replies": _channel("replies", "reply", "how each ended", topics, topics.reply_max_bytes, topics.reply_retention_days),
        "askedReplies": {
            # No address: the request names it, in a header.
            "address": None,
            "description": "A topic of topics.reply_topics that a request asks its reply to be written to.",
            "messages": {"reply": _ref("#/components/messages/reply")},
        },
        "dlq": _channel("dlq", "deadLetter", "what was given up", topics, topics.dead_letter_max_bytes, topics.dead_letter_retention_days),
    }


def _channel(name: str, message: str, holds: str, topics: TopicSettings, max_bytes: int, days: float) -> Document:
    """A topic as `topics init` makes it."""
    configuration = {"cleanup.policy": ["delete"], "retention.ms": round(days * DAY_MS), "max.message.bytes": max_bytes}
    binding = {"partitions": topics.partitions, "topicConfiguration": configuration, "bindingVersion": KAFKA_BINDING}
    return {
        "address": f"{{prefix}}.{name}",
        "description": f"The topic that holds {holds}.",
        "parameters": {"prefix": {"default": topics.prefix, "description": "topics.prefix of the workers' configuration"}},
        "messages": {message: _ref(f"#/components/messages/{message}")},
        "bindings": {"kafka": binding},
    }


def _operations() -> Document:
    reply_to = {"location": "$message.header#/kafka_replyTopic", "description": "the header reply_to says the same"}
    return {
        "execute": {
            "action": "receive",
            "summary": "Make the call of a request and answer it.",
            "channel": _ref("#/channels/requests"),
            "messages": [_ref("#/channels/requests/messages/request")],
            "reply": {"channel": _ref("#/channels/replies"), "messages": [_ref("#/channels/replies/messages/reply")]},
        },
        "executeAndReplyAsAsked": {
            "action": "receive",
            "summary": "The same, for a request that names the topic of its reply.",
            "channel": _ref("#/channels/requests"),
            "messages": [_ref("#/channels/requests/messages/request")],
            "reply": {
                "address": reply_to,
                "channel": _ref("#/channels/askedReplies"),
                "messages": [_ref("#/channels/askedReplies/messages/reply")],
            },
        },
        "giveUp": {
            "action": "send",
            "summary": "Keep the record of a request that could not succeed, beside its reply.",
            "channel": _ref("#/channels/dlq"),
            "messages": [_ref("#/channels/dlq/messages/deadLetter")],
        },
    }


def _request() -> Document:
    return {
        "title": "request",
        "summary": "One HTTP call on a configured upstream.",
        "headers": request_headers(),
        "payload": _payload("request"),
        "correlationId": {"location": "$message.header#/kafka_correlationId"},
        "bindings": _keyed("lane key, such as doc:42 or apikey:team-a: requests of one key are called in order; never a secret"),
    }


def _reply() -> Document:
    return {
        "title": "reply",
        "summary": "How a request ended: one for each execution, on the partition of its request's number unless that asks otherwise.",
        "headers": reply_headers(),
        "payload": _payload("reply"),
        "correlationId": {"location": "$message.header#/kafka_correlationId"},
        "bindings": _keyed("the request's"),
    }


def _dead_letter() -> Document:
    return {
        "title": "dead letter",
        "summary": "The original record, key, value and headers byte for byte, and why it was given up.",
        "contentType": "application/octet-stream",
        "headers": dead_letter_headers(),
        "payload": {"description": "the original value, whatever it is; its beginning where the topic cannot take it"},
        "bindings": {"kafka": {"key": {"description": "the original key, whatever it is"}, "bindingVersion": KAFKA_BINDING}},
    }


def _payload(name: str) -> Document:
    return {"schemaFormat": JSON_SCHEMA, "schema": _ref(f"./{name}.schema.json")}


def _keyed(description: str) -> Document:
    key = {"type": "string", "minLength": 1, "maxLength": KEY_MAX_BYTES, "description": description}
    return {"kafka": {"key": key, "bindingVersion": KAFKA_BINDING}}


def _ref(target: str) -> Document:
    return {"$ref": target}
