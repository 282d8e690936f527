"""From each row of the consumer's list (consumer_rows.txt) to the tests that show it.

A row is cut into what it claims, in its own words; behind each claim stand its tests: `file.py::test` in this folder,
or the name of a transcript in transcripts/. test_spec_rows.py checks that nothing of the list is left out, and that all
of them exist.
"""

from __future__ import annotations

Claims = dict[str, tuple[str, ...]]

ONE_POLL: Claims = {
    "`poll` does six things, in this order, and no more": (
        "test_spec_rows.py::test_one_poll_does_its_things_in_order",
        "test_spec_rows.py::test_a_poll_of_what_is_buffered_does_no_more_than_fetch_ahead",
    ),
    "1. coordinator work: find the coordinator, join and sync if needed, send due heartbeats, auto-commit if due": (
        "test_spec_rows.py::test_one_poll_does_its_things_in_order",
        "test_spec_rows.py::test_a_long_poll_sends_heartbeats_and_commits_when_they_are_due",
    ),
    "2. positions: for assigned partitions without one, take the committed offset": (
        "test_positions.py::test_a_position_is_the_committed_offset",
        "test_consumer.py::test_commit_and_go_on_from_there",
    ),
    "else the reset policy (`earliest`, `latest`, `none` → error)": (
        "test_positions.py::test_without_a_committed_offset_the_policy_is_asked_of_the_leader",
        "test_positions.py::test_none_is_an_error_that_names_the_partitions_and_says_what_to_do",
        "test_consumer.py::test_latest_begins_at_the_end",
        "test_consumer.py::test_without_a_reset_policy_a_missing_offset_is_an_error",
    ),
    "3. return what is already buffered, after sending the next fetches (prefetch)": (
        "test_fetcher.py::test_the_next_fetch_goes_out_before_the_first_is_handed_out",
        "test_spec_rows.py::test_the_next_fetch_is_under_way_when_poll_returns",
    ),
    "4. send fetches for partitions with room": (
        "test_fetcher.py::test_no_more_than_twice_fetch_max_bytes_are_buffered",
        "test_fetcher.py::test_a_node_is_not_asked_while_one_of_its_partitions_has_no_room",
    ),
    "5. wait for data, bounded by the timeout and by the next coordinator deadline": (
        "test_spec_rows.py::test_a_poll_waits_for_data_no_longer_than_its_time",
        "test_spec_rows.py::test_a_long_poll_sends_heartbeats_and_commits_when_they_are_due",
        "test_consumer_group_faults.py::test_polls_without_any_time_get_there_too",
    ),
    "6. if a rebalance is due, return empty so that the group settles sooner; else return what arrived": (
        "test_consumer_group_faults.py::test_a_poll_returns_early_when_a_rebalance_is_due",
        "test_membership.py::test_rebalance_is_due_from_the_heartbeat_on_and_wants_a_poll",
    ),
}

SUBSCRIPTIONS: Claims = {
    "`subscribe(topics)`, `subscribe(pattern)` and `assign(partitions)` exclude each other": (
        "test_subscription.py::test_topics_pattern_and_assign_exclude_each_other",
        "test_consumer.py::test_subscribe_pattern_and_assign_exclude_each_other",
    ),
    "an empty list is `unsubscribe`": ("test_consumer.py::test_an_empty_list_unsubscribes",),
    "polling with none is an error": ("test_consumer.py::test_polling_with_no_subscription_is_an_error",),
    "null or blank topics are refused": (
        "test_subscription.py::test_null_or_blank_topics_are_refused",
        "test_consumer.py::test_blank_topics_are_refused",
    ),
    "A pattern is matched again whenever metadata changes": (
        "test_subscription.py::test_a_pattern_is_matched_again_and_new_topics_join_the_subscription",
        "subscriptions-a-pattern",
    ),
    "new topics join the subscription without a restart": (
        "test_consumer.py::test_a_pattern_finds_topics_that_are_made_later",
    ),
    "`assign` needs no group": ("test_consumer.py::test_assign_reads_without_a_group",),
    "if it has a `group.id` it commits with generation −1": (
        "test_consumer.py::test_assign_with_a_group_commits_and_does_not_join",
        "test_commits.py::test_assign_needs_no_group_and_commits_with_generation_minus_one",
    ),
    "Group membership and metadata never move its partitions": (
        "test_spec_rows.py::test_neither_the_group_nor_metadata_moves_what_was_assigned_by_hand",
    ),
    "Only the leader watches partition counts and rejoins when they change": (
        "subscriptions-only-the-leader-watches-partition-counts",
        "test_consumer.py::test_the_leader_rejoins_when_a_topic_gets_more_partitions",
        "test_membership_group.py::test_more_partitions_are_found_by_the_leader",
    ),
}

JOINING: Claims = {
    "FindCoordinator goes to the least loaded known node": (
        "test_group_coordinator.py::test_the_look_up_goes_to_whichever_node_is_least_loaded_on_the_data_lane",
        "test_network.py::test_any_node_prefers_the_least_loaded",
    ),
    "NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE and disconnects forget the coordinator and look it up again with "
    "backoff and jitter": (
        "joining-1-not-coordinator",
        "joining-1-the-coordinator-is-looked-up-again-with-backoff",
        "test_group_coordinator.py::test_a_forgotten_coordinator_is_asked_for_again_when_needed_after_the_backoff",
        "test_group_coordinator.py::test_the_backoff_has_jitter",
        "test_consumer_group_faults.py::test_an_error_that_passes_is_not_the_users_business",
        "test_consumer_group_faults.py::test_a_lost_request_or_answer_is_not_the_users_business",
    ),
    "MEMBER_ID_REQUIRED: rejoin at once with the given id": ("joining-1-a-new-member",),
    "the id survives a disconnect between join and sync": (
        "joining-2-the-id-survives-a-disconnect-between-join-and-sync",
        "joining-2-the-id-survives-a-disconnect-before-the-join",
    ),
    "UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION: reset the generation and rejoin": (
        "joining-3-unknown-member-id",
        "joining-3-illegal-generation",
        "test_consumer_group_faults.py::test_a_member_that_the_coordinator_removed_while_it_synced_joins_anew",
        "test_consumer_group_faults.py::test_a_member_that_was_removed_hears_so_by_its_heartbeat",
    ),
    "REBALANCE_IN_PROGRESS: rejoin and keep the identity": (
        "joining-3-rebalance-in-progress",
        "test_spec_rows.py::test_a_rebalance_keeps_the_identity",
    ),
    "COORDINATOR_LOAD_IN_PROGRESS: back off": (
        "joining-3-load-in-progress",
        "test_consumer_group_faults.py::test_an_error_that_passes_is_not_the_users_business",
    ),
    "FENCED_INSTANCE_ID, GROUP_MAX_SIZE_REACHED, INCONSISTENT_GROUP_PROTOCOL, INVALID_SESSION_TIMEOUT, "
    "GROUP_AUTHORIZATION_FAILED: raised to the caller, each with what to do about it": (
        "test_membership.py::test_every_refusal_says_what_to_do",
        "test_consumer_group_faults.py::test_an_error_for_the_user_is_raised_by_poll_and_says_what_to_do",
        "test_consumer_group_faults.py::test_a_fenced_static_member_is_told_every_time_and_can_be_closed",
        "test_consumer_group_faults.py::test_the_broker_takes_only_so_many_members",
        "test_consumer_group_faults.py::test_a_member_whose_assignors_nobody_else_has_is_told",
        "test_consumer_group_faults.py::test_a_session_that_the_broker_does_not_allow",
        "joining-4-fenced-instance-id",
        "joining-4-group-max-size-reached",
        "joining-4-inconsistent-group-protocol",
        "joining-4-invalid-session-timeout",
        "joining-4-group-authorization-failed",
    ),
    "An answer that belongs to an older generation never touches the current one": (
        "joining-5-a-late-join-answer",
        "joining-5-a-late-sync-answer",
        "joining-5-a-late-heartbeat-answer",
        "test_commit_refused.py::test_an_answer_for_an_older_generation_does_not_reset_the_current_one",
    ),
    "The join request waits as long as the rebalance timeout allows (`max.poll.interval.ms` + margin)": (
        "joining-6-the-join-waits-as-long-as-the-rebalance-timeout",
        "joining-6-request-timeout-is-longer",
        "test_spec_rows.py::test_a_join_that_takes_longer_than_a_request_may_is_waited_for",
    ),
    "`skip_assignment` is honoured; the leader goes on watching metadata": (
        "joining-7-skip-assignment",
        "test_spec_rows.py::test_a_static_leader_that_comes_back_does_not_assign_but_watches_metadata",
    ),
}

CALLBACKS: Claims = {
    "Eager: revoke everything before the join": (
        "callbacks-1-eager",
        "test_membership_group.py::test_eager_members_give_back_everything",
    ),
    "Cooperative: keep what is owned, revoke after sync only what moved, rejoin at once if anything was revoked": (
        "callbacks-1-cooperative",
        "test_membership_group.py::test_cooperative_members_keep_what_stays",
        "test_consumer.py::test_two_members_share_and_one_takes_over",
    ),
    "Order: revoked, then assigned": (
        "callbacks-2-revoked-then-assigned-and-the-first-exception",
        "test_membership.py::test_callbacks_run_in_order_with_what_belongs_before_and_after_each",
    ),
    "`lost` instead of revoked when ownership is already gone (unknown member, illegal generation, fenced)": (
        "callbacks-3-lost-after-unknown-member",
        "callbacks-3-lost-after-illegal-generation",
        "callbacks-3-lost-after-fencing",
        "test_consumer_group_faults.py::test_a_heartbeat_that_tells_of_a_rebalance_makes_it_rejoin",
        "test_consumer_group_faults.py::test_a_member_that_was_given_up_loses_its_partitions_and_comes_back",
        "test_consumer_group_faults.py::test_a_fenced_static_member_is_told_every_time_and_can_be_closed",
    ),
    "All callbacks run; the first exception is raised afterwards": (
        "test_consumer.py::test_an_exception_in_a_callback_is_raised_by_poll_after_all_of_them_ran",
        "test_consumer_group_faults.py::test_a_callback_that_raises_stops_neither_the_group_nor_the_others",
    ),
    "The protocol used is one that every configured assignor supports": (
        "test_assignors_loading.py::test_the_protocol_used_is_one_that_every_configured_assignor_supports",
        "test_membership.py::test_the_protocol_is_one_that_every_assignor_supports",
    ),
    "a mix that has none fails at construction": (
        "test_assignors_loading.py::test_a_mix_that_has_no_common_protocol_fails",
        "test_membership.py::test_a_mix_without_a_common_protocol_fails_at_construction",
    ),
}

STAYING: Claims = {
    "Heartbeats run in the background, also between join and sync and during long processing": (
        "staying-1-heartbeats-between-join-and-sync",
        "staying-1-heartbeats-while-the-user-works",
        "test_consumer_group_faults.py::test_heartbeats_go_on_while_the_user_works",
        "test_consumer_group_faults.py::test_heartbeats_go_on_in_a_callback",
        "test_async_consumer.py::test_heartbeats_go_on_while_other_tasks_run",
    ),
    "they stop when `max.poll.interval.ms` passes without a poll, and the member leaves the group with that reason": (
        "staying-1-max-poll-interval",
        "test_consumer_group_faults.py::test_who_does_not_poll_in_time_leaves_and_is_told_why",
    ),
    "Static members do not leave on close; dynamic ones do": (
        "staying-2-static-members-do-not-leave",
        "staying-2-dynamic-members-leave",
        "test_consumer.py::test_a_static_member_comes_back_without_a_rebalance",
        "test_consumer_end.py::test_close_in_the_middle_of_anything_ends_in_time_and_leaves_the_group",
    ),
    "Session expiry without an answer marks the coordinator unknown": (
        "staying-3-session-expiry",
        "staying-3-session-expiry-while-the-user-works",
    ),
}

COMMITTING: Claims = {
    "Auto-commit: on the interval": (
        "test_auto_commit.py::test_a_poll_after_the_interval_commits_what_was_returned_before_it",
        "test_consumer.py::test_auto_commit_on_the_interval",
    ),
    "before a rejoin (bounded)": (
        "test_auto_commit.py::test_before_a_rejoin_the_member_commits_and_waits_for_the_answer",
        "test_auto_commit.py::test_the_commit_before_a_rejoin_is_repeated_but_bounded",
        "test_consumer_group_faults.py::test_a_rebalance_that_somebody_asks_for_commits_first",
    ),
    "on close": (
        "test_auto_commit.py::test_close_commits_what_was_returned_by_the_last_poll_too",
        "test_consumer.py::test_auto_commit_on_close_holds_what_poll_returned",
    ),
    "on a change of manual assignment": (
        "test_auto_commit.py::test_a_change_of_manual_assignment_commits_first",
        "test_spec_rows.py::test_another_assignment_by_hand_commits_the_one_before",
    ),
    "Only positions of records already returned": (
        "test_auto_commit.py::test_time_alone_commits_nothing_for_the_last_records_may_still_be_at_work",
        "test_consumer.py::test_iteration_commits_only_what_it_gave_out",
        "test_spec_rows.py::test_what_is_only_buffered_is_not_committed",
    ),
    "`commit()` sync and async": (
        "test_consumer.py::test_commit_and_go_on_from_there",
        "test_commits.py::test_async_commits_leave_at_once_and_their_callbacks_come_in_order",
    ),
    "async order is kept": (
        "test_consumer.py::test_async_commits_keep_their_order_and_call_back",
        "test_commits.py::test_whatever_comes_the_coordinator_never_sees_an_older_commit_after_a_newer_one",
    ),
    "sync waits for earlier asyncs": ("test_commits.py::test_a_sync_commit_waits_for_earlier_asyncs",),
    "Stale member → CommitFailed, rebalance running → RebalanceInProgress: both say what it means for duplicates": (
        "test_commit_refused.py::test_a_stale_member_gets_commit_failed_which_says_what_it_means_for_duplicates",
        "test_commit_refused.py::test_rebalance_running_gives_rebalance_in_progress_and_asks_for_a_rejoin",
        "test_consumer_group_faults.py::test_a_commit_that_is_refused_says_what_it_means",
    ),
    "Commit with metadata and leader epoch": (
        "test_commits.py::test_a_commit_carries_metadata_and_leader_epoch_in_every_version",
        "test_consumer.py::test_commit_and_go_on_from_there",
    ),
    "`committed()` for any partitions": (
        "test_committed.py::test_committed_answers_for_any_partitions_in_every_version",
        "test_spec_rows.py::test_committed_answers_for_partitions_that_are_not_assigned",
    ),
    "offset fetch asks for stable offsets": (
        "test_committed.py::test_committed_asks_for_stable_offsets_and_waits_for_them",
        "test_spec_rows.py::test_committed_answers_for_partitions_that_are_not_assigned",
    ),
}

FETCHING: Claims = {
    "Fetch sessions (KIP-227)": (
        "test_fetch_session.py::test_what_has_not_changed_is_not_said_again",
        "test_consumer_cluster.py::test_a_session_names_a_partition_once_and_again_only_when_it_moved",
        "test_consumer_cluster.py::test_a_session_that_the_broker_forgot_is_begun_anew_without_loss",
    ),
    "topic ids (v13+)": (
        "test_fetch_session.py::test_topics_go_by_id_since_v13_and_by_name_before",
        "test_consumer_cluster.py::test_topics_are_asked_for_by_id_where_the_broker_can",
        "test_consumer_cluster.py::test_a_topic_with_another_id_is_another_topic",
    ),
    "leader epoch checks (KIP-320)": (
        "test_validation.py::test_a_log_that_was_cut_back_moves_the_position_to_where_it_diverges",
        "test_consumer_cluster.py::test_a_log_that_was_cut_back_is_read_from_where_it_diverged",
        "test_consumer_cluster.py::test_a_seek_with_a_leader_epoch_is_validated_before_anything_is_read",
    ),
    "preferred replica (KIP-392)": (
        "test_fetcher_errors.py::test_the_preferred_replica_is_read_until_metadata_max_age",
        "test_consumer_cluster.py::test_a_client_with_a_rack_reads_from_the_replica_it_is_sent_to",
        "test_consumer_cluster.py::test_a_replica_that_dies_is_left_for_the_leader",
    ),
    "A late answer for a position that was changed by `seek` is dropped": (
        "test_fetcher.py::test_a_late_answer_for_a_position_changed_by_seek_is_dropped",
        "test_consumer_cluster.py::test_a_late_answer_for_a_position_that_a_seek_changed_is_dropped",
    ),
    "OUT_OF_RANGE after a seek is ignored": (
        "test_fetcher_errors.py::test_out_of_range_after_a_seek_is_ignored",
        "test_consumer_cluster.py::test_out_of_range_after_a_seek_is_ignored",
    ),
    "`pause`/`resume` keep buffered data unless sought": (
        "test_fetcher.py::test_pause_keeps_buffered_data_for_resume",
        "test_fetcher.py::test_pause_then_seek_drops_buffered_data",
        "test_consumer.py::test_a_paused_partition_gives_nothing_until_it_is_resumed",
    ),
    "`max.poll.records` slices without dropping": (
        "test_fetcher.py::test_max_poll_records_slices_without_dropping",
        "test_consumer.py::test_max_poll_records_slices_without_dropping",
    ),
    "`read_committed`: aborted records and control batches are never returned, positions move past them": (
        "test_fetcher_transactions.py::test_read_committed_returns_no_aborted_records_and_moves_past_them",
        "test_consumer_cluster.py::test_read_committed_gives_nothing_that_was_aborted_or_is_open_and_no_markers",
        "test_consumer_cluster.py::test_a_log_that_ends_in_aborted_records_moves_the_position_past_them",
    ),
    "A corrupt batch stops its partition with an error naming topic, partition and offset, until the user seeks": (
        "test_fetcher_errors.py::test_a_corrupt_batch_stops_its_partition_until_the_user_seeks",
        "test_consumer_broker_faults.py::"
        "test_a_corrupt_batch_stops_its_partition_until_a_seek_and_the_others_go_on",
    ),
}

ASSIGNORS: Claims = {
    "range (co-partitioned, static order)": (
        "test_assignors_range.py::test_each_topic_is_cut_into_ranges_and_the_first_members_get_one_more",
        "test_assignors_properties.py::test_range_keeps_co_partitioned_topics_together",
        "test_assignors_range.py::test_static_members_come_first_and_by_instance_id",
    ),
    "roundrobin": ("test_assignors_roundrobin.py::test_partitions_are_dealt_over_topics",),
    "sticky": (
        "test_assignors_sticky.py::test_what_a_member_leaves_is_divided_and_the_others_keep_what_they_have",
        "test_assignors_properties.py::test_nothing_moves_without_need",
    ),
    "cooperative-sticky": (
        "test_assignors_sticky.py::test_a_partition_that_changes_hands_is_withheld_for_a_round",
        "test_assignors_properties.py::test_cooperative_rounds_end_with_every_partition_given",
    ),
    "rack-aware": (
        "test_assignors_range.py::test_partitions_go_to_members_in_the_rack_of_a_replica",
        "test_assignors_sticky.py::test_racks_weigh_more_than_stickiness_and_less_than_equal_shares",
    ),
    "user-defined ones by entry point": (
        "test_assignors_loading.py::test_by_entry_point",
        "test_assignors_loading.py::test_by_class_and_by_instance",
    ),
    "Deterministic: same input, same output": (
        "test_assignors_properties.py::test_the_order_of_members_and_topics_makes_no_difference",
    ),
    "Subscription and assignment bytes are those of Kafka's ConsumerProtocol v0–v3": (
        "test_consumer_protocol.py::test_each_version_of_a_subscription",
        "test_consumer_protocol.py::test_an_assignment_is_the_same_in_every_version",
    ),
    "so a group may mix our members with any other client's": (
        "test_spec_rows.py::test_a_group_mixes_our_members_with_another_clients",
    ),
}

SECTIONS: dict[str, Claims] = {
    "One poll": ONE_POLL,
    "Subscriptions": SUBSCRIPTIONS,
    "Joining": JOINING,
    "Rebalance callbacks": CALLBACKS,
    "Staying": STAYING,
    "Committing": COMMITTING,
    "Fetching": FETCHING,
    "Assignors": ASSIGNORS,
}
