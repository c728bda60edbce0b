#!/usr/bin/perl

# KV events: stored and removed blocks in each encoding; gaps, replays,
# restarts, reloads; ports that are not publishers; better predictions.

use lib 't/lib';
use JSON::PP;
use Kvroute;

my $t = Kvroute->new(workers => 2);
my $true = JSON::PP::true;

my @encodings = qw(vllm-map vllm-array vllm-bytes sglang sglang-array trtllm);
my (%e, %zmq, %replay);

# an engine whose events are at its own port plus 1000 or more

sub engine {
    my ($name, @args) = @_;

    ($zmq{$name}, $replay{$name}) = $t->ports(2);
    ($e{$name}) = $t->engines(1, '--hardware', 'none', '--model', 'm',
                              '--enable-prompt-tokens-details',
                              '--kv-cache-size', 4096, '--block-size', 16,
                              '--kv-events', $zmq{$name},
                              '--kv-replay', $replay{$name}, @args);
}

# the port relative to the server's port, if it is higher

sub beside {
    my ($name, $word, $port) = @_;

    my $n = $port - $e{$name};

    return $n > 0 ? "$word=+$n" : "$word=$port";
}

engine($_, '--kv-encoding', $_, '--kv-cache-size', 2048) for @encodings;
engine('lossy');
engine('small', '--kv-cache-size', 1024);
engine('blind', '--kv-cache-size', 1024);
engine('mixed');
engine('flood');

# two replicas with consecutive publishers stand for two ranks

my ($p0, $p1) = $t->ports(2);
my ($rank) = $t->engines(2, '--hardware', 'none', '--model', 'm',
                         '--kv-events', $p0);

my %conf = (
    (map { ($_ => "port=$zmq{$_} replay=$replay{$_}") } @encodings),
    lossy => "port=$zmq{lossy}",
    small => join(' ', beside(small => port => $zmq{small}),
                       beside(small => replay => $replay{small})),
    mixed => "port=$replay{mixed} replay=$zmq{mixed}",
    flood => "port=$zmq{flood} replay=$replay{flood}",
    blind => '',
    ranks => "port=$p0-$p1"
);

$e{ranks} = $rank;

$t->upstream($_, "server 127.0.0.1:$e{$_};", "server 127.0.0.2:$e{blind} down;",
             $conf{$_} ? "kvroute_events $conf{$_};" : ()) for sort keys %conf;

my $locations = join '', map {
    "    location /$_/ { proxy_pass http://$_/; }\n"
} sort keys %conf;

$t->conf(<<'EOF' . $locations)->run();
    kvroute_zone zone=z:8m;
    client_body_buffer_size 1m;
EOF

sub events { return $t->peer($_[0], $e{$_[0]})->{events}; }
sub cache { return $t->peer($_[0], $e{$_[0]})->{cache}; }
sub published { return $t->control($e{$_[0]})->{kv_events}; }

sub ask {
    my ($name, $seed, $len, %arg) = @_;

    my $r = $t->post($arg{direct} ? '/v1/chat/completions'
                                  : "/$name/v1/chat/completions",
                     chat(text($len, $seed)),
                     $arg{direct} ? (port => $e{$name}) : ());

    die "$name: $r->{status}\n" unless $r->{status} == 200;
}

# all published messages have been read; some may be lost

sub read_all {
    my ($name) = @_;

    return wait_for(sub {
        my ($read, $there) = (events($name), published($name));

        return $read->{messages} + $read->{lost} == $there->{messages};
    });
}


# the first messages after a connection

ok(wait_for(sub { published('lossy')->{subscribers} == 1 }), 'a publisher has a subscriber');
ask('lossy', 0, 2000);
ok(read_all('lossy'), 'the subscriber has read all');
is(events('lossy')->{stored}, published('lossy')->{stored}, 'and used all');

ok(wait_for(sub { !grep { $_->{sources} != 1 } map { events($_) }
                      grep { $conf{$_} && $_ ne 'mixed' && $_ ne 'ranks' } keys %conf }),
   'publishers are connected');

# all encodings give the same result

for my $name (@encodings) {
    ask($name, $_, 20_000) for 1 .. 8;
    ok(read_all($name), "$name: all events are read");

    my ($read, $there) = (events($name), published($name));

    is("$read->{stored} $read->{removed}", "$there->{stored} $there->{removed}",
       "$name: blocks stored and removed");
    is($read->{tokens}, 16 * $there->{stored}, "$name: tokens");
    is("$read->{garbled} $read->{lost} $read->{repeated}", '0 0 0', "$name: in order");
    ok($read->{trusted}, "$name: and trusted");
    is($read->{state}, 'fresh', "$name: its state");
    cmp_ok($read->{age_ms}, '<', 60_000, "$name: with its age");
}

cmp_ok(published('vllm-map')->{removed}, '>', 0, 'blocks were removed');

# an emptied cache, which the engine reports with the next step

my $name = 'vllm-map';

$t->post('/reset_prefix_cache', '', port => $e{$name});
is(events($name)->{cleared}, 0, 'not reported yet');
ask($name, 8, 20_000);
ok(wait_for(sub { events($name)->{cleared} == 1 }), 'cleared');
is(cache($name)->{flushes_event}, 1, 'the index is flushed');

ask($name, 8, 20_000);
ok(read_all($name), 'blocks of the next step');
is(cache($name)->{flushes_usage}, 0, 'not found by responses');

# lost messages are replayed, and none counts twice

my $before = events($name);

$t->control($e{$name}, { kv_lose => 3 });
ask($name, 100 + $_, 2000) for 1 .. 5;
ok(read_all($name), 'lost messages arrive');
is(events($name)->{lost}, 0, 'none is missing');
cmp_ok(events($name)->{replayed} - $before->{replayed}, '>=', 3, 'by a replay');

$t->control($e{$name}, { kv_double => 2, kv_swap => 1 });
ask($name, 200 + $_, 2000) for 1 .. 6;
ok(read_all($name), 'doubled and out of order');
is(events($name)->{tokens}, 16 * published($name)->{stored}, 'each is counted once');

# without a replay they stay lost, and events are not trusted for a while

ask('lossy', 1, 2000);
ok(read_all('lossy'), 'a publisher without replay');
$t->control($e{lossy}, { kv_lose => 3 });
ask('lossy', $_, 2000) for 2 .. 6;
ok(read_all('lossy'), 'continues');
is(events('lossy')->{lost}, 3, 'lost ones are counted');

# invalid messages are skipped

$t->control($e{$name}, { kv_garbage => 16 });
ask($name, 300, 2000);
ok(wait_for(sub { events($name)->{garbled} > 8 }), 'garbage is counted');
ok(wait_for(sub { ask($name, 301, 2000); events($name)->{sources} == 1
                  && events($name)->{tokens} == 16 * published($name)->{stored} }),
   'and does no harm');

# a publisher that is unreachable for a while, and one that restarts

$before = events($name);
$t->control($e{$name}, { kv_mute => $true });
ok(wait_for(sub { events($name)->{sources} == 0 }), 'a publisher is unreachable');
like($t->get('/kvroute/metrics')->{body},
     qr/^kvroute_peer_events_sources\{upstream="$name",.*\} 0$/m,
     'the metric for an alert');
ask($name, 400 + $_, 2000) for 1 .. 3;
$t->control($e{$name}, { kv_mute => JSON::PP::false });
ok(wait_for(sub { events($name)->{sources} == 1 }), 'it is connected again');
ok(read_all($name), 'missed messages are replayed');
is(events($name)->{lost}, 0, 'no message is lost');
is(events($name)->{restarts}, $before->{restarts}, 'it has not restarted');

my $flushes = cache($name)->{flushes_event};

$t->control($e{$name}, { restart => $true });
ok(wait_for(sub { events($name)->{restarts} == $before->{restarts} + 1 }),
   'a restart is found by its publisher');
is(cache($name)->{flushes_event}, $flushes + 1, 'the index is flushed');
ok(wait_for(sub { events($name)->{sources} == 1 }), 'and it is connected');
$before = events($name);
ask($name, 500, 2000);
ok(wait_for(sub { events($name)->{messages} - $before->{messages}
                  == published($name)->{messages} }), 'from its first message');

# numbers start at 0 again on the same connection

$before = events($name);
$t->control($e{$name}, { kv_restart => $true });
ask($name, 501, 2000);
ok(wait_for(sub { events($name)->{restarts} == $before->{restarts} + 1 }),
   'numbers start again');

# reloads and a killed worker while events arrive (20 reloads: make
# bench-events)

$t->control($e{flood}, { kv_flood => 3000 });

for (1 .. 4) {
    my $at = events('flood')->{messages};

    $t->reload();
    ok(wait_for(sub { events('flood')->{messages} > $at }), 'events continue') or last;
}

my ($first) = sort { $a <=> $b } $t->active_workers();
$t->kill_worker($first);
my $at = events('flood')->{messages};
ok(wait_for(sub { events('flood')->{messages} > $at + 10 }),
   'events continue after a kill');

$t->control($e{flood}, { kv_flood => 0 });
ok(read_all('flood'), 'all events are read');
is(events('flood')->{lost}, 0, 'no reload has lost a message');
cmp_ok(abs(events('flood')->{stored} - published('flood')->{stored}), '<=', 100,
       'no message counts twice, except the one in work at the kill');
is(events('flood')->{restarts}, 0, 'no restart was assumed');

# a flood of events must not delay requests

$t->control($e{flood}, { kv_flood => 100_000 });
ok(wait_for(sub { ask('flood', 1, 2000); published('flood')->{stored} > 60_000 }),
   'requests are answered in a flood');
$t->control($e{flood}, { kv_flood => 0 });
ok(wait_for(sub { events('flood')->{messages} == published('flood')->{messages} }),
   'all events are read');

# both of two ranks, or none

ok(wait_for(sub { events('ranks')->{sources} == 2 }), 'two ranks');
$t->post('/v1/chat/completions', chat(text(3000, 1)), port => $rank);
$t->post('/v1/chat/completions', chat(text(3000, 1)), port => $rank + 1);
ok(wait_for(sub { events('ranks')->{messages} >= 2 && events('ranks')->{trusted} }),
   'both are read');

# swapped ports

ok(wait_for(sub { $t->log() =~ /no KV events: server 127\.0\.0\.1:\Q$e{mixed}\E, rank 0: not a publisher/ }),
   'a port without events');
ok(!events('mixed')->{trusted}, 'is not trusted');
is(events('mixed')->{state}, 'off', 'its state is off');
like($t->get('/kvroute/metrics')->{body},
     qr/^kvroute_peer_events_fresh\{upstream="mixed",.*\} 0$/m, 'it is not fresh');

# Predictions: half of the traffic bypasses nginx, the engine caches replies,
# and the cache is small.  Events report all of this.

my %off;

for my $name ('small', 'blind') {

    my $x = 7;

    for my $round (1 .. 60) {
        $x = ($x * 1103515245 + 12345) % 2147483648;

        ask($name, 1000 + ($x >> 16) % 12, 6000);
        ask($name, 2000 + $round, 3000, direct => 1);
        read_all($name) if $name eq 'small';
    }

    my $c = cache($name);
    $off{$name} = $c->{predicted_tokens} / ($c->{delivered_tokens} || 1);
}

cmp_ok(abs($off{small} - 1), '<', 0.12, 'predicted tokens are delivered');
cmp_ok($off{blind}, '>', 1.2, 'without events they are not');
is(cache('small')->{flushes_usage}, 0, 'no loss of the cache is assumed');

$t->stop();
is(() = $t->log() =~ /a message of KV events is invalid/g, 1, 'invalid messages are logged once');

$t->done();
