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

# an engine whose events are at its own port and 1000 or more

sub engine {
    my ($name, @args) = @_;

    ($zmq{$name}, $replay{$name}) = $t->ports(2);
    ($e{$name}) = $t->engines(1, '--hardware', 'none', '--model', 'm',
                              '--enable-prompt-tokens-details',
                              '--kv-cache-size', 4096, '--block-size', 16,
                              '--kv-events', $zmq{$name},
                              '--kv-replay', $replay{$name}, @args);
}

# a port as what is to be added to that of the server, if it comes after it

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

# two replicas whose publishers are one after the other stand for two ranks

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

# all that was published has been read; a message may have been lost

sub read_all {
    my ($name) = @_;

    return wait_for(sub {
        my ($read, $there) = (events($name), published($name));

        return $read->{messages} + $read->{lost} == $there->{messages};
    });
}


# the first words of one that has only just been connected to

ok(wait_for(sub { published('lossy')->{subscribers} == 1 }), 'a publisher has a subscriber');
ask('lossy', 0, 2000);
ok(read_all('lossy'), 'which has read all');
is(events('lossy')->{stored}, published('lossy')->{stored}, 'and gone by it');

ok(wait_for(sub { !grep { $_->{sources} != 1 } map { events($_) }
                      grep { $conf{$_} && $_ ne 'mixed' && $_ ne 'ranks' } keys %conf }),
   'publishers are connected');

# each encoding tells the same

for my $name (@encodings) {
    ask($name, $_, 20_000) for 1 .. 8;
    ok(read_all($name), "$name: all is read");

    my ($read, $there) = (events($name), published($name));

    is("$read->{stored} $read->{removed}", "$there->{stored} $there->{removed}",
       "$name: blocks stored and removed");
    is($read->{tokens}, 16 * $there->{stored}, "$name: tokens");
    is("$read->{garbled} $read->{lost} $read->{repeated}", '0 0 0', "$name: in order");
    ok($read->{trusted}, "$name: and believed");
    is($read->{state}, 'fresh', "$name: as is told");
    cmp_ok($read->{age_ms}, '<', 60_000, "$name: with its age");
}

cmp_ok(published('vllm-map')->{removed}, '>', 0, 'there were some to remove');

# a cache that is emptied, which is told with the next step

my $name = 'vllm-map';

$t->post('/reset_prefix_cache', '', port => $e{$name});
is(events($name)->{cleared}, 0, 'nothing is told yet');
ask($name, 8, 20_000);
ok(wait_for(sub { events($name)->{cleared} == 1 }), 'all is cleared');
is(cache($name)->{flushes_event}, 1, 'and forgotten');

ask($name, 8, 20_000);
ok(read_all($name), 'what the next step has stored');
is(cache($name)->{flushes_usage}, 0, 'nobody had to find out');

# messages that are lost are replayed, and none is counted twice

my $before = events($name);

$t->control($e{$name}, { kv_lose => 3 });
ask($name, 100 + $_, 2000) for 1 .. 5;
ok(read_all($name), 'lost messages come');
is(events($name)->{lost}, 0, 'none is missing');
cmp_ok(events($name)->{replayed} - $before->{replayed}, '>=', 3, 'by a replay');

$t->control($e{$name}, { kv_double => 2, kv_swap => 1 });
ask($name, 200 + $_, 2000) for 1 .. 6;
ok(read_all($name), 'doubled and out of order');
is(events($name)->{tokens}, 16 * published($name)->{stored}, 'each is counted once');

# without a replay they are gone, and what they said is in doubt

ask('lossy', 1, 2000);
ok(read_all('lossy'), 'a publisher without replay');
$t->control($e{lossy}, { kv_lose => 3 });
ask('lossy', $_, 2000) for 2 .. 6;
ok(read_all('lossy'), 'goes on');
is(events('lossy')->{lost}, 3, 'lost ones are counted');

# what is no message is passed over

$t->control($e{$name}, { kv_garbage => 16 });
ask($name, 300, 2000);
ok(wait_for(sub { events($name)->{garbled} > 8 }), 'garbage is counted');
ok(wait_for(sub { ask($name, 301, 2000); events($name)->{sources} == 1
                  && events($name)->{tokens} == 16 * published($name)->{stored} }),
   'and costs nothing');

# a publisher that nobody reaches for a while, and one that is another process

$before = events($name);
$t->control($e{$name}, { kv_mute => $true });
ok(wait_for(sub { events($name)->{sources} == 0 }), 'a publisher is gone');
like($t->get('/kvroute/metrics')->{body},
     qr/^kvroute_peer_events_sources\{upstream="$name",.*\} 0$/m, 'an alert is made of that');
ask($name, 400 + $_, 2000) for 1 .. 3;
$t->control($e{$name}, { kv_mute => JSON::PP::false });
ok(wait_for(sub { events($name)->{sources} == 1 }), 'it is there again');
ok(read_all($name), 'what it said meanwhile is replayed');
is(events($name)->{lost}, 0, 'all of it');
is(events($name)->{restarts}, $before->{restarts}, 'it is the same');

my $flushes = cache($name)->{flushes_event};

$t->control($e{$name}, { restart => $true });
ok(wait_for(sub { events($name)->{restarts} == $before->{restarts} + 1 }),
   'a restart is found by its publisher');
is(cache($name)->{flushes_event}, $flushes + 1, 'all is forgotten');
ok(wait_for(sub { events($name)->{sources} == 1 }), 'and it is listened to');
$before = events($name);
ask($name, 500, 2000);
ok(wait_for(sub { events($name)->{messages} - $before->{messages}
                  == published($name)->{messages} }), 'from its beginning');

# numbers from 0 by the same connection

$before = events($name);
$t->control($e{$name}, { kv_restart => $true });
ask($name, 501, 2000);
ok(wait_for(sub { events($name)->{restarts} == $before->{restarts} + 1 }),
   'numbers begin again');

# reloads and a killed worker while events come (20 of them: make bench-events)

$t->control($e{flood}, { kv_flood => 3000 });

for (1 .. 4) {
    my $at = events('flood')->{messages};

    $t->reload();
    ok(wait_for(sub { events('flood')->{messages} > $at }), 'events go on') or last;
}

my ($first) = sort { $a <=> $b } $t->active_workers();
$t->kill_worker($first);
my $at = events('flood')->{messages};
ok(wait_for(sub { events('flood')->{messages} > $at + 10 }), 'as they do after a kill');

$t->control($e{flood}, { kv_flood => 0 });
ok(read_all('flood'), 'all is read');
is(events('flood')->{lost}, 0, 'no reload has lost a message');
cmp_ok(abs(events('flood')->{stored} - published('flood')->{stored}), '<=', 100,
       'and none was counted twice, but for the one that was read when it was killed');
is(events('flood')->{restarts}, 0, 'nor was it taken for another process');

# a flood that no worker may be held up by

$t->control($e{flood}, { kv_flood => 100_000 });
ok(wait_for(sub { ask('flood', 1, 2000); published('flood')->{stored} > 60_000 }),
   'requests are answered in a flood');
$t->control($e{flood}, { kv_flood => 0 });
ok(wait_for(sub { events('flood')->{messages} == published('flood')->{messages} }),
   'all of it is read');

# both of two ranks, or none

ok(wait_for(sub { events('ranks')->{sources} == 2 }), 'two ranks');
$t->post('/v1/chat/completions', chat(text(3000, 1)), port => $rank);
$t->post('/v1/chat/completions', chat(text(3000, 1)), port => $rank + 1);
ok(wait_for(sub { events('ranks')->{messages} >= 2 && events('ranks')->{trusted} }),
   'both are heard');

# ports that are mixed up

ok(wait_for(sub { $t->log() =~ /no KV events: server 127\.0\.0\.1:\Q$e{mixed}\E, rank 0: not a publisher/ }),
   'a port that is none of events');
ok(!events('mixed')->{trusted}, 'is not believed');
is(events('mixed')->{state}, 'off', 'nor is it any other than off');
like($t->get('/kvroute/metrics')->{body},
     qr/^kvroute_peer_events_fresh\{upstream="mixed",.*\} 0$/m, 'and not fresh');

# Predictions: half of the traffic comes by another way, replies are kept by the
# engine, and the cache is small.  With events all of that is known.

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

cmp_ok(abs($off{small} - 1), '<', 0.12, 'what is predicted is delivered');
cmp_ok($off{blind}, '>', 1.2, 'which it is not without events');
is(cache('small')->{flushes_usage}, 0, 'nothing is taken to be forgotten');

$t->stop();
is(() = $t->log() =~ /a message of KV events is invalid/g, 1, 'invalid messages are logged once');

$t->done();
