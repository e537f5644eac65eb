SOCK_SEQPACKET = 5


def socket(*arguments, **named):
    raise OSError("nobody answers")
