"""The form of messages is learnt from one refusal each, and whatever is said stays said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.agent.llm.client.messages import Message
from hillclimb.agent.llm.client.request_form import MessageForm

TALK = (
    Message(role="system", content="You tune kernels."),
    Message(role="user", content="the briefing"),
    Message(role="user", content="go on"),
    Message(role="assistant", content="IDEA: x"),
    Message(role="user", content="it failed"),
)
OPENING = TALK[:2]


def taught(*complaints: str, messages: tuple[Message, ...] = TALK) -> list[tuple[str, object]]:
    form = MessageForm()
    for said in complaints:
        assert form.learn(said, messages), said
    return [(turn["role"], turn["content"]) for turn in form.apply(messages)]


@pytest.mark.parametrize(
    "said",
    [
        "System role not supported",
        "Unsupported value: 'messages[0].role' does not support 'system' with this model.",
        "Developer instruction is not enabled for models/gemma-3-27b-it",
        "Jinja Exception: System role not supported",
        "Conversation roles must alternate user/assistant/user/assistant/...",
        "Input should be 'user' or 'assistant': messages.0.role",
        "messages[0]: unknown variant",
    ],
)
def test_a_server_without_a_system_role_hears_it_from_the_user(said: str) -> None:
    [(role, content)] = taught(said, messages=OPENING)
    assert (role, content) == ("user", "You tune kernels.\n\nthe briefing")


def test_a_server_that_wants_a_developer_has_one() -> None:
    turns = taught(
        "'system' is not supported with this model; use 'developer' instead (role)", messages=OPENING
    )
    assert turns == [("developer", "You tune kernels."), ("user", "the briefing")]
    later = taught(
        "'system' is not supported; use 'developer' instead (role)",
        "role developer is not supported",
        messages=OPENING,
    )
    assert later == [("user", "You tune kernels.\n\nthe briefing")]


def test_roles_that_must_alternate_do() -> None:
    turns = taught("After the optional system message, conversation roles must alternate user/assistant")
    assert [role for role, _ in turns] == ["system", "user", "assistant", "user"], (
        "and the system keeps its role"
    )
    both = taught("roles must alternate", "roles must alternate user/assistant")
    assert [role for role, _ in both] == ["user", "assistant", "user"]
    assert both[0][1] == "You tune kernels.\n\nthe briefing\n\ngo on"


def test_content_in_parts() -> None:
    turns = taught("messages[0].content must be a list of content parts", messages=OPENING)
    assert turns[0] == ("system", [{"type": "text", "text": "You tune kernels."}])


def test_in_the_end_all_is_one_message() -> None:
    form, asked = MessageForm(), 0
    while form.learn("bad role", TALK):
        asked += 1
    [turn] = form.apply(TALK)
    assert asked <= 4 and turn["role"] == "user"
    assert all(message.content in turn["content"] for message in TALK)
    assert len(form.adjusted()) == asked


@pytest.mark.parametrize(
    "said",
    [
        "Unsupported parameter: top_p",
        "Rate limit reached",
        "the model is overloaded",
        "invalid JSON body",
        "",
    ],
)
def test_other_complaints_change_nothing(said: str) -> None:
    assert not MessageForm().learn(said, TALK)


@given(
    st.lists(
        st.builds(
            Message, role=st.sampled_from(["system", "user", "assistant"]), content=st.text(max_size=9)
        ),
        min_size=1,
        max_size=6,
    ),
    st.lists(
        st.sampled_from(
            ["system role", "roles must alternate", "content must be a list of parts", "bad role"]
        ),
        max_size=6,
    ),
)
def test_nothing_that_is_said_gets_lost(messages: list[Message], complaints: list[str]) -> None:
    form = MessageForm()
    for said in complaints:
        form.learn(said, messages)
    turns = form.apply(messages)
    assert turns
    whole = "".join(
        turn["content"]
        if isinstance(turn["content"], str)
        else "".join(part["text"] for part in turn["content"])
        for turn in turns
    )
    assert all(message.content.encode(errors="replace").decode() in whole for message in messages)
