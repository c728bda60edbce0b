#!/usr/bin/perl

# Aliases: events are matched to the entries of the prompt that caused them.
# Removed blocks are no longer counted as cached, stored ones are again; also
# with two upstreams, a reload, a killed worker and an emptied cache.
# upstreams, a reload, a killed worker and an emptied cache.

use lib 't/lib';
use Kvroute;
use Kvroute::Publisher;

my $t = Kvroute->new(workers => 2);

my $p = Kvroute::Publisher->new($t, 'one', '--kv-cache-size', 1024);
my ($e, $live, $replay) = @$p{qw(port live replay)};

$t->upstream('one', "server 127.0.0.1:$e;", "server 127.0.0.2:$e down;",
             "kvroute_events port=$live replay=$replay aliases=256k;");
$t->upstream('two', "server 127.0.0.1:$e;", "server 127.0.0.2:$e down;",
             "kvroute_events port=$live replay=$replay;");

$t->conf(<<"EOF");
    kvroute_zone zone=z:4m;
    client_body_buffer_size 1m;

    add_header X-Matched \$kvroute_matched_bytes always;
    location /one/ { proxy_pass http://one/; }
    location /two/ { proxy_pass http://two/; }
EOF

$t->run();

sub events { return $p->events(); }

my $n = 0;

# returns the bytes that the index assumes to be cached

sub ask {
    my ($seed, %arg) = @_;

    my $r = $t->post(($arg{direct} ? '' : $arg{upstream} // '/one') . '/v1/chat/completions',
                     chat(text($arg{len} // 8_000, $seed)),
                     $arg{direct} ? (port => $e) : ());

    die "$r->{status}\n" unless $r->{status} == 200;

    $n++ unless $arg{direct} || $arg{held};
    return $r->{headers}{'x-matched'};
}

ok($p->connected(), 'the publisher is connected');

# events are not used before the first one arrives

ask(90, direct => 1, len => 500);
ok(wait_for(sub { events()->{trusted} }), 'events are used');

# requests of two upstreams, of different lengths, one by one: simultaneous ones
# could be ambiguous

for (1 .. 4) {
    ask($_, len => 7_000 + 500 * $_, upstream => $_ % 2 ? '/one' : '/two');
    ok(wait_for(sub { $p->looked_for() == $n }), 'a request is to be matched');
}

is(events()->{attributed}, $n, 'its blocks are matched');
cmp_ok(events()->{aliases}, '>=', 100, 'aliases are stored');
cmp_ok(ask(1, len => 7_500, held => 1), '>', 7_000, 'it is cached');

# 1024 blocks are 64 KB: nine more requests go past kvroute, and a1's blocks are
# removed, because they were last used after a2's

ask(10 + $_, direct => 1) for 1 .. 9;

ok(wait_for(sub { events()->{taken_away} >= 100 }), 'removed blocks leave the index');
is(ask(2, len => 8_000, held => 1) // 0, 0, 'no bytes are assumed to be cached');

# another client stores the same prompt again: its blocks are restored

ok($p->read_all(), 'all events are read');

my $again = events()->{given_back};

ask(4, len => 9_000, direct => 1);

ok($p->read_all(), 'all events are read again');
cmp_ok(events()->{given_back}, '>=', $again + 30, 'stored blocks are restored');
cmp_ok(ask(4, len => 9_000, held => 1), '>', 8_000, 'it is cached again');
is(events()->{wrong}, 0, 'no match was wrong');

# a reload and a killed worker keep the aliases

my ($known, $connects) = @{events()}{qw(aliases connects)};

$t->reload();
ok(wait_for(sub { events()->{connects} > $connects }), 'connected after a reload');
$connects++;
$t->kill_worker($_) for $t->active_workers();

ok(wait_for(sub { events()->{connects} > $connects }),
   'connected after workers were killed');
is(events()->{aliases}, $known, 'aliases are still there');

# a request that was not matched is cached: send another one

my $last = 30;

ok(wait_for(sub {
    my $aliases = events()->{aliases} + int(8_700 / 256);

    ask(++$last, len => 8_700, held => 1);
    return wait_for(sub { events()->{aliases} >= $aliases }, 2);
}), 'requests are matched again');

# An emptied cache, reported with the next step: nothing is cached.  Blocks keep their
# names, so blocks that any client stores are known at once.

$t->post('/reset_prefix_cache', '', port => $e);
ask(20, direct => 1, len => 500);

ok(wait_for(sub { events()->{cleared} }), 'the engine reports an empty cache');
is(ask($last, len => 8_700, held => 1) // 0, 0, 'nothing is cached');
$t->post('/reset_prefix_cache', '', port => $e);
ask($last, len => 8_700, direct => 1);
ok($p->read_all(), 'all events are read');
is(events()->{cleared}, 2, 'the cache is empty again');
cmp_ok(ask($last, len => 8_700, held => 1) // 0, '>', 8_000,
       'blocks stored by others are cached');

$t->stop();
$t->done();
