"""Promises of the docs that rules of the conformance kit hold, by the names of both."""

HELD = {
    "a-graph-or-no-trace": ["test_exception_in_the_body_passes_unchanged"],
    "breaks-are-one-run": ["test_breaks_run_in_the_capture_and_in_replays"],
    "breaks-make-events-real": ["test_breaks_make_events_real"],
    "breaks-refuse-used-live-objects": ["test_breaks_refuse_live_objects_that_work_uses"],
    "clone-is-independent": ["test_clone_is_independent"],
    "memory-of-calls-is-kept": ["test_graph_keeps_the_memory_that_it_uses"],
    "pool-of-one-device": ["test_pool_of_another_device_is_refused"],
    "recapture-that-fails": ["test_failed_recapture_leaves_the_former_work"],
    "replay-only-enqueues": ["test_replay_returns_without_waiting"],
    "replays-during-a-recapture": ["test_graph_is_replayed_during_its_recapture"],
    "retained-until-reset": ["test_retained_objects_live_until_reset"],
    "runs-are-kept-in-order": ["test_replays_from_several_threads_are_all_counted"],
    "stream-of-another-device": ["test_stream_of_another_device_is_refused"],
    "unjoined-on-every-backend": ["test_unjoined_fork_is_a_capture_error"],
    "unknown-mode": ["test_undeclared_mode_is_refused_before_anything_begins"],
    "update-says-how": [
        "test_updated_graph_does_the_work_of_the_other",
        "test_updated_graph_gets_work_of_another_shape",
    ],
    "waits-from-outside-are-refused": ["test_wait_for_an_event_of_another_capture_is_refused"],
}
