#!/usr/bin/perl

# Broken and hostile publishers of KV events: they delay no other one, and the
# log stays short.  One engine with several readers, reloads at bad times, and
# shutdown.

use lib 't/lib';
use IO::Select;
use Kvroute;

my $t = Kvroute->new(workers => 2);

sub frame {
    my ($flags, $data) = @_;

    return length $data < 256 ? pack('C C/a*', $flags, $data)
        : pack('C Q>', $flags | 2, length $data) . $data;
}

sub message {
    my ($seq, $payload) = @_;

    return frame(1, '') . frame(1, pack('Q>', $seq)) . frame(0, $payload);
}

# a batch of this many "all cleared" events

sub cleared {
    my ($n) = @_;

    return "\x93\xc0\xdd" . pack('N', $n) . "\x91\xb0AllBlocksCleared" x $n . "\0";
}

my %says = (
    mute => sub { return },
    clears => sub {
        return message(0, cleared(50_000)) . join '', map { message($_, cleared(1)) } 1 .. 5000;
    },
    long => sub { pack('C Q>', 2, 1 << 30) . 'x' x 1000 },
    frames => sub { frame(1, 'x') x 50_000 . frame(0, cleared(1)) },
    closes => sub { '' },
);

# publishers at a port next to their server's, which gets no requests

for my $name (keys %says) {
    $t->serve("P_$name", sub {
        my ($c) = @_;

        open my $fh, '>>', "$t->{dir}/$name.log";
        syswrite $fh, "connected\n";

        if ($name ne 'mute') {
            syswrite $c, "\xff" . "\0" x 8 . "\x7f\x03\x01NULL" . "\0" x 48;
            syswrite $c, frame(4, "\x05READY\x0bSocket-Type" . pack('N/a*', 'PUB'));
            sysread $c, my $data, 64;
            my $left = $says{$name}->();

            while (length $left) {
                substr($left, 0, (syswrite $c, $left) // return) = '';
            }

            return if $name eq 'closes';
        }

        # reads all data, and answers nothing

        1 while sysread $c, my $data, 65536;
    });
}

my ($zmq, $replay) = $t->ports(2);
my ($engine) = $t->engines(1, '--hardware', 'none', '--model', 'm', '--block-size', 16,
                           '--kv-cache-size', 4096, '--kv-events', $zmq, '--kv-replay', $replay);

# each has its own zone: in one zone the engine would have a single reader

my ($zones, $locations) = ('', '');

for (sort keys %says) {
    $zones .= "    kvroute_zone zone=z_$_:2m;\n";
    $locations .= "    location /$_/ { proxy_pass http://$_/; }\n";

    $t->upstream($_, "kvroute kv_cache zone=z_$_;",
                 "kvroute_events port=$t->{vars}{\"P_$_\"};",
                 "server 127.0.0.1:$engine;", "server 127.0.0.2:$engine down;");
}

my %zone = (a => 'one', b => 'one', c => 'two');

$t->upstream($_, "kvroute kv_cache zone=$zone{$_};",
             "kvroute_events port=$zmq replay=$replay;",
             "server 127.0.0.1:$engine;") for sort keys %zone;

$t->conf(<<"EOF");
    kvroute_zone zone=one:2m;
    kvroute_zone zone=two:2m;
$zones
$locations
    location /a/ { proxy_pass http://a/; }
EOF

$t->run();

sub of { return $t->peer($_[0], $engine)->{events}; }
sub published { return $t->control($engine)->{kv_events}; }

sub ask {
    my ($name, $seed) = @_;

    return $t->post("/$name/v1/chat/completions", chat(text(2000, $seed)))->{status};
}

sub lines {
    my ($name) = @_;

    return scalar(() = Kvroute::slurp("$t->{dir}/$name.log") =~ /^/mg);
}

# two upstreams of one zone share a reader, two zones have two

ok(wait_for(sub { published()->{subscribers} == 2 }), 'two readers for three upstreams');
is(ask('a', $_), 200, 'a request') for 1 .. 3;

ok(wait_for(sub { of($_)->{messages} == published()->{messages} }),
   "$_: all events are read")
    for qw(a b c);
is(of($_)->{stored}, published()->{stored}, "$_: once") for qw(a b c);

# hostile publishers

for my $name (sort keys %says) {
    is(ask($name, 1), 200, "$name: requests are served");
}

ok(wait_for(sub { of('clears')->{messages} == 5001 }),
   'a publisher that clears the cache all the time');
is(of('clears')->{cleared}, 5001, 'once by each message');
is(of('clears')->{garbled}, 0, 'all messages are valid');
cmp_ok(scalar(() = $t->log() =~ /cleared its cache/g), '<=', 1, 'is logged once');

ok(wait_for(sub { lines('long') >= 2 }), 'a frame of 1 GB: disconnected and tried again');
is(of('long')->{messages}, 0, 'and not read');
ok(wait_for(sub { of('frames')->{messages} + of('frames')->{garbled} >= 1 }),
   'a message of very many frames is read');
ok(wait_for(sub { lines('closes') >= 5 }),
   'a publisher that closes at once is tried again');
like($t->log(), qr/(?:no KV events|KV events stopped): server \S+, rank 0: frame of more than 64 MB/,
     'and the reason is logged');

# (a connection without an answer looks like this one)

ok(wait_for(sub { lines('mute') >= 2 }), 'a mute publisher is disconnected, too');

# a worker other than the reader is killed

my ($first, $second) = sort { $a <=> $b } $t->active_workers();
my $messages = of('a')->{messages};

$t->kill_worker($second);
ask('a', 10);
ok(wait_for(sub { of('a')->{messages} > $messages }),
   'a killed worker that was not the reader');
is(of('a')->{connects}, 1, 'no new connection');

# a reload during a replay

$t->control($engine, { kv_replay_silent => 1, kv_lose => 2 });
my $replays = published()->{replays};
ask('a', 20 + $_) for 1 .. 3;
ok(wait_for(sub { published()->{replays} >= $replays + 2 }),
   'a replay that does not arrive');
$t->reload();
$t->control($engine, { kv_replay_silent => 0 });
is(ask('a', 30), 200, 'with the next message the replay is requested again');
ok(wait_for(sub { of('a')->{messages} == published()->{messages}
                  && of('c')->{messages} == published()->{messages} }),
   'arrives after a reload');
is(of($_)->{lost}, 0, "$_: no message is lost") for qw(a c);
is(of($_)->{stored}, published()->{stored}, "$_: no message is read twice") for qw(a c);

# the end, while all are connected

my @workers = $t->active_workers();
$t->control($engine, { kv_flood => 20_000 });
$messages = of('a')->{messages};
ok(wait_for(sub { of('a')->{messages} > $messages + 3 }), 'many messages');
$t->stop();
ok(!(grep { kill 0, $_ } @workers), 'the workers have quit');
cmp_ok(scalar(() = $t->log() =~ /\[(?:warn|notice)\][^\n]*kvroute/g), '<', 40, 'the log is short');

$t->done();
