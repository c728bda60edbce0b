#!/usr/bin/perl

# Aliases: events are attributed to the entries of the prompt that caused them.
# Removed blocks are no longer cached, stored ones are again; also with two
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

# returns what was taken to be held, in bytes

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

# nobody is heard before the first event

ask(90, direct => 1, len => 500);
ok(wait_for(sub { events()->{trusted} }), 'events are gone by');

# requests of two upstreams, each of another length, and one by one: of several that
# are under way some may be taken for none

for (1 .. 4) {
    ask($_, len => 7_000 + 500 * $_, upstream => $_ % 2 ? '/one' : '/two');
    ok(wait_for(sub { $p->looked_for() == $n }), 'a request is looked for');
}

is(events()->{attributed}, $n, 'and their blocks are found');
cmp_ok(events()->{aliases}, '>=', 100, 'places are known');
cmp_ok(ask(1, len => 7_500, held => 1), '>', 7_000, 'it is held');

# 1024 blocks are 64 KB: nine more come past kvroute, and a1 is removed, as the
# last that was used after a2

ask(10 + $_, direct => 1) for 1 .. 9;

ok(wait_for(sub { events()->{taken_away} >= 100 }), 'what is removed is taken away');
is(ask(2, len => 8_000, held => 1) // 0, 0, 'and is not taken to be held');

# the same prompt is stored again by somebody else: it is given back

ok($p->read_all(), 'all is read');

my $again = events()->{given_back};

ask(4, len => 9_000, direct => 1);

ok($p->read_all(), 'all is read again');
cmp_ok(events()->{given_back}, '>=', $again + 30, 'what is stored is given back');
cmp_ok(ask(4, len => 9_000, held => 1), '>', 8_000, 'and is held again');
is(events()->{wrong}, 0, 'nothing was wrong');

# a reload and a killed worker forget nothing of it

my ($known, $connects) = @{events()}{qw(aliases connects)};

$t->reload();
ok(wait_for(sub { events()->{connects} > $connects }), 'listened to after a reload');
$connects++;
$t->kill_worker($_) for $t->active_workers();

ok(wait_for(sub { events()->{connects} > $connects }), 'and after workers were killed');
is(events()->{aliases}, $known, 'aliases are still there');

# one that was not found is in the cache then: another one is asked

my $last = 30;

ok(wait_for(sub {
    my $aliases = events()->{aliases} + int(8_700 / 256);

    ask(++$last, len => 8_700, held => 1);
    return wait_for(sub { events()->{aliases} >= $aliases }, 2);
}), 'requests are found again');

# An emptied cache, told with the next step: nothing is held.  Blocks have the names that
# they had, so what anybody stores is known at once.

$t->post('/reset_prefix_cache', '', port => $e);
ask(20, direct => 1, len => 500);

ok(wait_for(sub { events()->{cleared} }), 'it is told that the cache is empty');
is(ask($last, len => 8_700, held => 1) // 0, 0, 'and nothing is held');
$t->post('/reset_prefix_cache', '', port => $e);
ask($last, len => 8_700, direct => 1);
ok($p->read_all(), 'all is read');
is(events()->{cleared}, 2, 'it is empty once more');
cmp_ok(ask($last, len => 8_700, held => 1) // 0, '>', 8_000, 'what others have stored is held');

$t->stop();
$t->done();
