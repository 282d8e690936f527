"""What the libraries cannot do, so that no test is left out in silence."""

from __future__ import annotations

from tests.clients.clients import CLIENTS

WHAT_IS_LEFT_OUT = {
    "confluent-kafka": {"delete_offsets", "remove_member", "replace_topic_config", "group_names"},
    "aiokafka": {
        "alter_offsets",
        "delete_group",
        "delete_offsets",
        "groups",
        "remove_member",
        "set_topic_config",
    },
    "kafka-python": {"group_names", "replace_topic_config"},
    # What it would send, AlterConfigs, undoes what is not named: Kafka advises against it.
    "kohort": {"replace_topic_config"},
    "asyncio-kohort": {"replace_topic_config"},
}


def test_each_gap_of_an_adapter_is_known() -> None:
    everything = {method for client in CLIENTS for method in vars(client) if not method.startswith("_")}
    gaps = {client.name: everything - set(dir(client)) for client in CLIENTS}
    assert gaps == WHAT_IS_LEFT_OUT
