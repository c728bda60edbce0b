#!/usr/bin/perl

# Ejection: each fault of the emulated engine, compared with round robin, and
# the number of retries in an outage.

use lib 't/lib';
use Kvroute;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);

my $t = Kvroute->new();

my @e = $t->engines(4, '--hardware', 'none', '--model', 'm');
my %upstreams = (
    plain  => 'kvroute_eject time=1h;',
    rr     => undef,
    off    => 'kvroute_eject off;',
    retry  => 'kvroute_eject time=1h;',
    short  => 'kvroute_eject time=200ms;',
    quick  => 'kvroute_eject time=200ms;',
    hangs  => 'kvroute_eject time=200ms;',
    empty  => 'kvroute_eject time=200ms;',
    gone   => 'kvroute_eject time=200ms;',
    few    => 'kvroute_eject time=1h;',
    some   => 'kvroute_eject time=1h fails=1000;',
    budget => 'kvroute_eject off retry_budget=20%;',
);

my $locations = '';

for my $name (sort keys %upstreams) {
    my $eject = $upstreams{$name};

    $t->upstream($name, $eject || 'plain', 'E0 E1 E2 E3 max_fails=0');

    my $next = $name eq 'retry' || $name eq 'budget'
        ? 'error timeout http_500 http_502 http_503 non_idempotent'
        : 'off';

    my $buffering = $name eq 'quick' ? 'off' : 'on';
    my $patience = $name eq 'hangs' ? '500ms' : '1h';

    $locations .= <<"EOF";
    location /$name/ {
        proxy_pass http://$name/;
        proxy_buffering $buffering;
        proxy_next_upstream $next;
        proxy_next_upstream_tries 2;
        proxy_read_timeout $patience;
        proxy_http_version 1.1;
    }
EOF
}

$t->conf($locations)->run();


sub sick {
    my ($i, $fault) = @_;
    $t->control($e[$i], { fault => $fault, fault_count => -1 });
}

sub cure { sick($_, 'none') for 0 .. 3; }
sub got { return $t->control($e[$_[0]])->{generate_requests}; }
sub state { return $t->peer($_[0], $e[$_[1]])->{state}; }

# sends requests one by one, each with a new prompt; returns how many failed or
# were incomplete

my $seed = 0;

sub send_some {
    my ($upstream, $n, %arg) = @_;
    my $bad = 0;

    for (1 .. $n) {
        my $r = $t->post("/$upstream/v1/chat/completions",
                         chat(text(400, ++$seed), %arg));
        $bad++ unless $r && $r->{status} && $r->{status} == 200
                      && (!$arg{stream} || $r->{body} =~ /\[DONE\]/);
    }

    return $bad;
}


# an engine that answers 500 at once

sick(0, 'status=500');

my $rr = send_some('rr', 200);
is($rr, 50, 'round robin gives it its share');

my $off = send_some('off', 100);
cmp_ok($off, '>=', 20, "switched off: $off of 100 fail");

my $bad = send_some('plain', 200);
cmp_ok($bad, '<=', $rr / 4, "$bad of 200 fail");
cmp_ok($bad, '>=', 5, 'the first ones fail');

my $p = $t->peer('plain', $e[0]);
is($p->{state}, 'ejected', 'its state');
is($p->{ejected}{reason}, '5xx', 'the reason');
cmp_ok($p->{ejected}{for}, '<=', 3600, 'the time');
is($p->{ejections}, 1, 'counted');
is(state('plain', 1), 'up', 'the others are up');
is(state('off', 0), 'up', 'switched off: no server is ejected');

like($t->log(), qr/\[warn\].*peer 127.0.0.1:$e[0] of upstream "plain" is (?#
     )ejected for 3600.0s:.*"5xx"/, 'and the log');

my $metrics = $t->get('/kvroute/metrics')->{body};
my $labels = qr/\{upstream="plain",peer="127.0.0.1:$e[0]"\}/;
like($metrics, qr/^kvroute_peer_ejected$labels 1$/m, 'a metric');
like($metrics, qr/^kvroute_peer_reason\{upstream="plain",(?#
     )peer="127.0.0.1:$e[0]",reason="5xx"\} 1$/m, 'with the reason');
like($metrics, qr/^kvroute_peer_ejections_total$labels 1$/m, 'and a counter');

# with retries no client notices, and the server is not tried repeatedly

is(send_some('retry', 20), 0, 'with retries none fails');
my $before = got(0);
is(send_some('retry', 80), 0, 'later none fails either');
cmp_ok(got(0) - $before, '<=', 2, 'and it gets few requests');

# it returns by probes

cmp_ok(send_some('short', 40), '>=', 5, 'the first ones fail');
cure();
ok(wait_for(sub { send_some('short', 4); state('short', 0) eq 'up' }),
   'back again');

# the share of ejected servers is limited

sick($_, 'status=500') for 0 .. 2;
send_some('few', 60);
is(scalar(grep { state('few', $_) ne 'up' } 0 .. 3), 2, 'two of four at most');
cure();

# not each time, but too often, without many in a row

$t->control($e[1], { fault => 'status=500', fault_rate => 0.7,
                     fault_count => -1 });
send_some('some', 150);
is(state('some', 1), 'ejected', 'a share of failures');
$t->control($e[1], { fault => 'none', fault_rate => 1 });

# each fault has its reason

my %ways = (
    'reset-before-headers' => 'reset',
    'close-before-headers' => 'reset',
    'truncate=1' => 'broken',
    'reset-after-headers' => 'broken',
    'reset-mid-stream=1' => 'broken',
    'status=404' => '404',
    'hang' => 'timeout',
    'error-in-stream=0' => 'error',
    'error-in-stream=1' => 'error',
    'error-in-body' => 'error',
    'bare-error-in-stream=0' => 'unclear',
    'client-error-in-stream=0' => 'unclear',
    'client-error-in-stream=1' => 'unclear',
    'empty-stream' => 'unclear',
);

# In turns: a server that is ejected repeatedly is out for longer each time, and is
# tried less often.

my $turn = 0;
my %own = ('hang' => 'hangs', 'empty-stream' => 'empty', 'status=404' => 'gone');

for my $case ((map { [$own{$_} // 'short', $_] } sort keys %ways),
              (map { [quick => $_] } 'error-in-stream=1', 'empty-stream'))
{
    my ($upstream, $way) = @$case;
    my $i = $turn++ % 4;

    sick($i, $way);

    my $n = $t->peer($upstream, $e[$i])->{ejections};

    ok(wait_for(sub {
        send_some($upstream, 8, stream => JSON::PP::true);
        return $t->peer($upstream, $e[$i])->{ejections} > $n;
    }), "$upstream, $way: ejected");
    is($t->peer($upstream, $e[$i])->{ejected}{reason}, $ways{$way}, 'why');

    cure();
    ok(wait_for(sub {
        send_some($upstream, 4);
        return state($upstream, $i) eq 'up';
    }), "$upstream, $way: back again");
}

# an outage is not doubled: a fifth, and ten.  Each half of ten seconds forgets
# half of the requests, which allows at most six more, in any time.

sick($_, 'status=500') for 0 .. 3;
$before = 0;
$before += got($_) for 0 .. 3;
my $began = clock_gettime(CLOCK_MONOTONIC);
is(send_some('budget', 200), 200, 'an outage');
my $halves = 1 + int((clock_gettime(CLOCK_MONOTONIC) - $began) / 5);
my $after = 0;
$after += got($_) for 0 .. 3;
my $retries = $after - $before - 200;
cmp_ok($retries, '<', 200 * 0.2 + 11 + 6 * $halves,
       "$retries retries of 200 requests");
cmp_ok($retries, '>=', 10, 'but some retries');

my $u = $t->status()->{upstreams}{budget};
is($u->{retries}, $retries, 'counted');
cmp_ok($u->{retries_denied}, '>=', 200 - $retries - 1,
       'with the denied ones');
my $r = $t->post('/budget/v1/chat/completions', chat('x'));
like($r->{body}, qr/\{.*error/s, "the engine's own error is passed on");
cure();

is(send_some('budget', 1), 0, 'the outage is over');

$t->done();
