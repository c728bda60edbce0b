#!/usr/bin/perl

# Answers with a status of the client's fault, 4xx above all: an engine that
# sends them where the others do not is ejected. A client with bad requests
# ejects no server, even if affinity sends them all to one.

use lib 't/lib';
use Kvroute;

my $t = Kvroute->new();

my @e = $t->engines(4, '--hardware', 'none', '--model', 'm');

my $all = 'E0 E1 E2 E3 max_fails=0';
my $eject = 'kvroute_eject time=1h;';

my %upstreams = (
    cache   => [$eject, $all],
    work    => ['kvroute least_request zone=z;', $eject, $all],
    other   => ['kvroute_eject time=1h;', $all],
    pair    => [$eject, 'E0 E1 max_fails=0'],
    alone   => [$eject, 'E0 max_fails=0'],
    back    => ['kvroute_eject time=200ms;', $all],
    off     => ['kvroute_eject off;', $all],
    mixed   => [$eject, $all],
    client  => ['kvroute sticky zone=z key=$http_x_session;', $eject, $all],
    couple  => ['kvroute sticky zone=z key=$http_x_session;', $eject,
                'E0 E1 max_fails=0'],
    prefix  => [$eject, $all],
    pinned  => [$eject, $all],
);

$t->upstream($_, @{$upstreams{$_}}) for sort keys %upstreams;

my $locations = join "\n", map {
    "        location /$_/ { proxy_pass http://$_/; proxy_http_version 1.1; }"
} sort keys %upstreams;

$t->conf(<<"EOF");
    kvroute_zone zone=z:4m;

    kvroute_pin \$http_x_pin;
$locations
EOF

$t->run();

my $seed = 0;

sub sick {
    my ($i, $fault) = @_;
    $t->control($e[$i], { fault => $fault, fault_count => -1 });
}

sub peers { return @{$t->status()->{upstreams}{$_[0]}{peers}}; }

sub ejections {
    my $n = 0;
    $n += $_->{ejections} for peers($_[0]);
    return $n;
}

# requests one by one, each with its own prompt; how many have that status

sub answered {
    my ($upstream, $n, $status, $prefix, %headers) = @_;
    my $got = 0;

    for (1 .. $n) {
        my $r = $t->post("/$upstream/v1/chat/completions",
                         chat(($prefix // '') . text(400, ++$seed)),
                         headers => \%headers);
        $got++ if $r && $r->{status} && $r->{status} == $status;
    }

    return $got;
}


# an engine answers all requests so: it gets at most a quarter of round robin's
# share

my $i = 0;

for my $case ([cache => 401], [work => 403], [other => 405], [pair => 400]) {
    my ($upstream, $status) = @$case;
    my $n = $upstream eq 'pair' ? 120 : 300;
    my $rr = $n / peers($upstream);
    my $k = $upstream eq 'pair' ? 1 : $i++;
    my $why = $status == 405 ? '4xx' : $status;

    sick($k, "status=$status");

    my $bad = answered($upstream, $n, $status);

    cmp_ok($bad, '<=', $rr / 4 + 2, "$upstream: $bad of $n with $status");

    my $now = $t->status();
    my $p = $t->peer($upstream, $e[$k], $now);

    is($p->{state}, 'ejected', 'the engine is ejected');
    is($p->{ejected}{reason}, $why, 'the reason');
    is(ejections($upstream), 1, 'no other engine is ejected');
    is($p->{minute}{errors_4xx}, $bad, 'counted');

    my %why = map { $_->{code} => $_ }
                  @{$now->{upstreams}{$upstream}{health}{why}};
    my $server = { name => "127.0.0.1:$e[$k]", state => 'ejected',
                   reason => "$why" };

    is_deeply(timeless($why{client_errors}),
              { code => 'client_errors', state => 'amber', status => "$why",
                requests => $p->{minute}{requests}, percent => 100, percent_elsewhere => 0,
                servers => [$server] }, 'health says so');
    is_deeply(timeless($why{not_up}{servers}), [$server], 'the health has the reason');

    sick($k, 'none');
}

like($t->log(), qr/\[warn\].*peer 127.0.0.1:$e[0] of upstream "cache" is (?#
     )ejected for 3600.0s:.*"401"/, 'the log has the reason');


# two of three answers have the status

$t->control($e[3], { fault => 'status=413', fault_rate => 0.67,
                     fault_count => -1 });
ok(wait_for(sub { answered('other', 10, 413); ejections('other') == 2 }),
   'two of three answers are enough');
$t->control($e[3], { fault => 'none', fault_rate => 1 });


# three statuses in turn: none of them is most of its answers

for my $n (1 .. 120) {
    sick(1, 'status=' . (401, 403, 400)[$n % 3]);
    answered('mixed', 1, 200);
}

is($t->peer('mixed', $e[1])->{state}, 'ejected', 'three statuses by turns');
is(ejections('mixed'), 1, 'no other engine is ejected');
sick(1, 'none');


# always 429, without Retry-After

sick(3, 'status=429');
ok(wait_for(sub { answered('back', 10, 429); ejections('back') }),
   'an engine that is always busy is ejected');
is($t->peer('back', $e[3])->{ejected}{reason}, '429', 'the reason');
sick(3, 'none');

ok(wait_for(sub {
    answered('back', 4, 200);
    $t->peer('back', $e[3])->{state} eq 'up';
}), 'the engine is back after the time');


# all engines answer so: the requests are at fault

sick($_, 'status=401') for 0 .. 3;
answered($_, 60, 401) for qw(client work);
is(ejections('client'), 0, 'all answer 401: none is ejected');
is(ejections('work'), 1, 'all answer 401 after one was ejected: no other one is');
sick($_, 'none') for 0 .. 3;

sick(0, 'status=401');
is(answered('alone', 60, 401), 60, 'one server: all its answers are passed on');
is(ejections('alone'), 0, 'one server is not ejected');
cmp_ok(answered('off', 100, 401), '>=', 20, 'switched off');
is(ejections('off'), 0, 'switched off: none is ejected');
sick(0, 'none');


# bad requests of a client at one server, by its session; other clients send few
# good ones there

for my $upstream (qw(client couple)) {

    for my $status (400, 401, 404, 422) {
        my @bad = ('X-Session' => "bad $status",
                   'X-Engine-Fault' => "status=$status");

        is(answered($upstream, 250, $status, '', @bad), 250,
           "$upstream: 250 bad requests with $status");
        is(answered($upstream, 2, 200, '', 'X-Session' => "good $status"), 2,
           'good requests are served');
    }

    is(ejections($upstream), 0, "$upstream: none is ejected");

    my $taken = grep { $_->{responses}{'4xx'} >= 200 } peers($upstream);
    cmp_ok($taken, '>=', 1, 'most bad requests went to the same servers');
}

# affinity by a long prefix

my $prefix = text(8000, ++$seed);

answered('prefix', 2, 200, $prefix);
is(answered('prefix', 500, 400, $prefix, 'X-Engine-Fault' => 'status=400'),
   500, 'bad requests with a prefix that one engine caches');
is(ejections('prefix'), 0, 'prefix: none is ejected');
cmp_ok((sort { $b <=> $a } map { $_->{responses}{'4xx'} } peers('prefix'))[0],
       '>=', 300, 'most bad requests went to that engine');

# affinity by a pin

is(answered('pinned', 100, 400, '', 'X-Pin' => "127.0.0.1:$e[1]",
            'X-Engine-Fault' => 'status=400'), 100, 'bad requests to a pinned server');
is($t->peer('pinned', $e[1])->{responses}{'4xx'}, 100,
   'the pinned server got all of them');
is(ejections('pinned'), 0, 'pinned: none is ejected');

$t->done();
