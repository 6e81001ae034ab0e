"""The work of a mail server on maildirs of 10 boxes, in 4 threads: messages of 1 to 16 KiB are delivered (write,
fsync, rename); then half of the operations read, and the others deliver, delete, mark and move messages alike. Each
change is durable when it returns (fsync of the directory). The papers run Dovecot's IMAP server; this is a program of
ours (helper/mail.c) that issues the same kinds of calls, without the server, its indexes and a network."""

from ..programs import expect
from . import WITH_FUSE

TITLE = "Maildirs"
PAPER = "BetrFS 0.2 §7.4, figure 9 (Dovecot); thesis, IMAP server"
KINDS = WITH_FUSE
BOXES, THREADS, MESSAGES, OPERATIONS = 10, 4, 4_000, 8_000


def sizes(options):
    messages, operations = scaled(options)
    return f"{messages:,} messages, {operations:,} operations"


def scaled(options):
    return options.sized(MESSAGES, 40, THREADS), options.sized(OPERATIONS, 80, THREADS)


def room(options):
    return sum(scaled(options)) * (24 << 10)


def measure(bench):
    messages, operations = scaled(bench.options)
    took = bench.helper("mail", bench.fs.dir / "mail", BOXES, messages, operations, THREADS)
    bench.rate("deliver", messages, "messages/s", took["delivered"])
    bench.rate("read, deliver, delete, mark, move", operations, "operations/s", took["worked"])
    bench.cold("mail")
    left = int(took["left"])
    seconds = bench.find(bench.fs.dir / "mail", found=left)
    bench.rate("find of all messages, cold", left, "messages/s", seconds)
    expect(left > 0, True, f"{bench.fs.name}: messages that are left")
