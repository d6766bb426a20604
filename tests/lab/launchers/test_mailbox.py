from sfao.lab.launchers.mailbox import Mailbox


def test_letters_are_taken_once_in_their_order_and_the_answer_is_whether_to_stop():
    mailbox = Mailbox()
    assert not mailbox.post((0, 0, b"a"))
    assert not mailbox.post(None)
    assert not mailbox.post((1, 0, b"b"))
    assert mailbox.take() == [(0, 0, b"a"), (1, 0, b"b")]
    assert mailbox.take() == []
    mailbox.stop()
    assert mailbox.post((0, 0, b"c"))
    assert mailbox.post(None)
    assert mailbox.take() == [(0, 0, b"c")]
