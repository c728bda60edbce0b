#!/usr/bin/perl

# Conditions that keep requests from a peer under every policy: a cap on pending
# work, max_conns, draining, slow start, down; and the control API.

use lib 't/lib';
use Kvroute;

my $t = Kvroute->new();

$t->backend("B$_") for 0 .. 3;
$t->{vars}{$_} = '' for qw(EXTRA FLAG);

my @policies = qw(kv_cache least_request round_robin random sticky);

# each policy with its own upstreams, and the switch "off"

my $locations = '';

for my $p (@policies, 'off') {
    my $name = $p eq 'off' ? 'kv_cache' : $p;

    $t->upstream("cap_$p", "kvroute $name zone=z max_pending=8k;", 'B0 B1 B2');
    $t->upstream("conns_$p", "kvroute $name zone=z;", 'B0 B1 B2 max_conns=1',
                 'B3 down');
    $t->upstream("drain_$p", "kvroute $name zone=z;", 'B0 B1 B2', 'B3 backup');
    $t->upstream("slow_$p", "kvroute $name zone=slow slow_start=1h;", 'B0 B1',
                 '%%EXTRA%%');

    my $policy = $p eq 'off' ? 'kvroute_policy off;' : '';

    $locations .= "    location /$_/$p/ { $policy proxy_pass http://${_}_$p; }\n"
        for qw(cap conns drain slow);
}

$t->upstream('back', 'kvroute least_request zone=backz slow_start=1h;',
             'B0 B1 B2 fail_timeout=1s');
$t->upstream('twin', 'kvroute least_request zone=backz slow_start=1h;',
             'B0 B1 B2');
$t->upstream('again', 'kvroute least_request zone=againz slow_start=1h;',
             'B0', 'B1 %%FLAG%%', '%%PUT%%', 'B3');
$t->upstream('last', 'kvroute least_request zone=z;', 'B0 B1 fail_timeout=1h');

my $conf = <<'EOF' . $locations;
    %%LOG%%
    kvroute_zone zone=z:4m;
    kvroute_zone zone=slow:4m;

    kvroute_zone zone=backz:4m;
    kvroute_zone zone=againz:4m;

    client_body_buffer_size 1m;
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_next_upstream error non_idempotent;

    location /last/off/ { kvroute_policy off; proxy_pass http://last; }
    location /api/ { kvroute_api write=on; }
    location /look/ { kvroute_api; }
EOF

my $put = 'server ' . address('B2') . ';';

$t->{vars}{PUT} = $put;
$t->conf($conf);
$t->run();

my $ready = time();

my $seed = 9000;

sub fresh { return chat(text($_[0] || 3000, $seed++)) }

sub address { return "127.0.0.1:$t->{vars}{$_[0]}" }

sub act { return $t->post("/api/$_[0]?peer=" . address($_[1]), '') }


for my $p (@policies) {

    # a peer above its cap gets no request while there are others

    my $end = $t->hold(1, "/cap/$p/", fresh(9000));
    my ($full) = grep { $t->peer("cap_$p", $t->{vars}{$_})->{pending} > 8192 }
                 qw(B0 B1 B2);
    my @to = map { $t->to("/cap/$p/", fresh()) } 1 .. 12;

    ok($full && !$t->tally(@to)->{$full}, "$p: max_pending is kept");

    # all are above it: then the cap does not count, and no request is rejected

    my $more = $t->hold(2, "/cap/$p/", [ fresh(9000), fresh(9000) ]);
    my @full = grep { $t->peer("cap_$p", $t->{vars}{$_})->{pending} > 8192 }
               qw(B0 B1 B2);
    is(scalar(@full), 3, "$p: all are full");

    my $r = $t->post("/cap/$p/?n=full$p", fresh());
    is($r->{status}, 200, "$p: served anyway");
    is($t->receipt("full$p")->{reason}, 'full', "$p: full, the reason");

    $_->() for $end, $more;

    # max_conns, and a server that is down

    $end = $t->hold(3, "/conns/$p/", [ map { fresh() } 1 .. 3 ]);
    @full = grep { $t->peer("conns_$p", $t->{vars}{$_})->{active} == 1 }
            qw(B0 B1 B2);
    is(scalar(@full), 3, "$p: max_conns is kept");
    is($t->post("/conns/$p/", fresh())->{status}, 502,
       "$p: answers as nginx does");
    $end->();
    is($t->post("/conns/$p/", fresh())->{status}, 200, "$p: room again");
}

# also with a policy that ignores prompts: off

{
    my $end = $t->hold(3, '/conns/off/', [ map { fresh() } 1 .. 3 ]);
    is($t->post('/conns/off/', fresh())->{status}, 502, 'off: max_conns');
    $end->();
}

# slow_start: a new peer gets one decision in 16 at first.  A zone's first
# seconds are the start of all its peers, so these must be over.

{
    my $one = fresh();

    $t->{vars}{EXTRA} = 'server ' . address('B2') . ';';

    sleep 7 - (time() - $ready) if time() - $ready < 7;

    $t->conf($conf);
    $t->reload();

    for my $p (@policies) {
        my @to = map { $t->to("/slow/$p/", fresh()) } 1 .. 120;
        my $new = $t->tally(@to)->{B2} // 0;

        # 1 in 16 is 7.5 of 120, and 40 would be its share; 30 or more: once in
        # 10^10

        cmp_ok($new, '<', 30, "$p: a new peer is not flooded");
    }

    # a prefix that all prompts share floods no new peer either

    my $system = text(600, 7);

    my @shared = map { $t->to('/slow/kv_cache/',
                              chat($system . text(6000, $seed++))) } 1 .. 150;

    # 9 expected, and 50 would be its share; 34 or more: once in 10^10

    cmp_ok($t->tally(@shared)->{B2} // 0, '<', 34,
           'kv_cache: nor by a shared prefix');

    # it gets prompts that it has cached at any time

    my $known = fresh(6000);
    my $first;

    for (1 .. 400) {
        $known = fresh(6000);
        last if $t->to('/slow/kv_cache/', $known) eq 'B2';
    }

    my @to = map { $t->to('/slow/kv_cache/', $known) } 1 .. 4;
    is("@to", 'B2 B2 B2 B2', 'kv_cache: gets prompts that it has cached');
}

# the same for a server that was marked failed and recovered

{
    my @to = map { $t->alone('/back/', fresh()) } 1 .. 9;
    is($t->tally(@to)->{B1}, 3, 'a fleet that starts together is not slow');

    # a closed kept connection is no failure, and the retry goes elsewhere

    my $given_up = sub { $t->peer('back', $t->{vars}{B1})->{unavail} };

    for (1 .. 30) {
        last if $given_up->();
        $t->post('/back/', fresh(), headers => { 'X-B1' => 'close' });
    }

    is($given_up->(), 1, 'marked failed');

    @to = map { $t->to('/twin/', fresh()) } 1 .. 30;
    cmp_ok($t->tally(@to)->{B1}, '>', 6,
           'not marked failed in another upstream');

    ok(wait_for(sub { $t->peer('back', $t->{vars}{B1})->{state} eq 'up' }),
       'fail_timeout is over');

    @to = map { $t->to('/back/', fresh()) } 1 .. 120;
    cmp_ok($t->tally(@to)->{B1} // 0, '<', 30, 'it is warmed up');

    @to = map { $t->to('/twin/', fresh()) } 1 .. 30;
    cmp_ok($t->tally(@to)->{B1}, '>', 6,
           'the other upstream does not warm it up');
}

# also for a server that was drained, down or removed, and returns

{
    my @to = map { $t->to('/again/', fresh()) } 1 .. 60;
    cmp_ok($t->tally(@to)->{$_}, '>', 10, "$_ has its share")
        for qw(B0 B1 B2 B3);

    $t->{vars}{FLAG} = 'down';
    $t->{vars}{PUT} = '';
    $t->conf($conf);
    $t->reload();

    @to = map { $t->to('/again/', fresh()) } 1 .. 20;
    ok(!$t->tally(@to)->{B1} && !$t->tally(@to)->{B2}, 'down, and removed');

    $t->{vars}{FLAG} = '';
    $t->{vars}{PUT} = $put;
    $t->conf($conf);
    $t->reload();

    # of 200 12.5 each, and 50 would be a share; 40 or more: once in 10^10

    @to = map { $t->to('/again/', fresh()) } 1 .. 200;
    cmp_ok($t->tally(@to)->{B1} // 0, '<', 40, 'no longer down: warmed up');
    cmp_ok($t->tally(@to)->{B2} // 0, '<', 40, 'added again: warmed up');

    @to = map { $t->to('/twin/', fresh()) } 1 .. 30;
    cmp_ok($t->tally(@to)->{B0}, '>', 6, 'not drained yet');

    act('drain', 'B0');
    act('undrain', 'B0');

    @to = map { $t->to('/twin/', fresh()) } 1 .. 120;
    cmp_ok($t->tally(@to)->{B0} // 0, '<', 30, 'no longer drained: warmed up');
    cmp_ok($t->tally(@to)->{$_}, '>', 20, "$_ stays as warm as it was")
        for qw(B1 B2);

    act('undrain', 'B1');
    @to = map { $t->to('/twin/', fresh()) } 1 .. 60;
    cmp_ok($t->tally(@to)->{B1}, '>', 10, 'nor is B1, which was not drained');
}

# draining: no new prompts

{
    my %known = map { ($_ => [ map { fresh() } 1 .. 6 ]) } @policies;
    my %home;

    for my $p (@policies) {
        $home{$p} = [ map { $t->to("/drain/$p/", $_) } @{$known{$p}} ];
    }

    is(act('drain', 'B1')->{status}, 200, 'drained');
    is($t->peer('drain_off', $t->{vars}{B1})->{state}, 'draining',
       'the status: draining');

    for my $p (@policies, 'off') {
        my @to = map { $t->to("/drain/$p/", fresh()) } 1 .. 10;
        ok(!$t->tally(@to)->{B1} && !$t->tally(@to)->{B3},
           "$p: nothing new for a draining peer");

        @to = map { $t->from($t->get("/drain/$p/")) } 1 .. 6;
        ok(!$t->tally(@to)->{B1}, "$p: nor without a body");
    }

    # it still gets prompts that it has cached

    my @to = map { $t->to('/drain/kv_cache/', $_) } @{$known{kv_cache}};
    is("@to", "@{$home{kv_cache}}", 'kv_cache: prompts that it has cached');

    # if all are draining, they are better than none or a backup

    act('drain', $_) for qw(B0 B2);
    @to = map { $t->to("/drain/$_/", fresh()) } @policies, 'off';
    ok(!grep({ !/^B[012]$/ } @to), 'all are draining: served anyway')
        or diag("@to");

    # it is kept over a reload, and can be repeated

    $t->reload();
    is($t->peer('drain_off', $t->{vars}{B1})->{state}, 'draining', 'kept');

    is(act('drain', 'B1')->{status}, 200, 'drained again');
    act('undrain', $_) for qw(B0 B1 B2);
    is(act('undrain', 'B1')->{status}, 200, 'undrained again');

    my @all = map { $t->to('/drain/round_robin/', fresh()) } 1 .. 9;
    is($t->tally(@all)->{B1}, 3, 'undrained: has its share');
}

# a draining server is better than none, for a retry and for a first try

{
    act('drain', 'B0');

    my %close = ('X-B1' => 'close');

    is($t->from($t->post('/last/off/', fresh(), headers => \%close)), 'B0',
       'off: the other one has failed just now');
    is($t->peer('last', $t->{vars}{B1})->{state}, 'unavail', 'marked failed');
    is($t->to('/last/off/', fresh()), 'B0', 'off: the other one is marked failed');
    is($t->from($t->get('/last/')), 'B0', 'without a body too');
    is($t->to('/last/', fresh()), 'B0', 'least_request: the same');

    act('undrain', 'B0');
}

# the API

{
    my $r = $t->get('/look/');
    is($r->{status}, 200, 'API: read');
    like($r->{body}, qr/"\Q@{[ address('B1') ]}\E":\{"id":\d+,"draining":false/,
         'API: shows the peers');
    like($r->{headers}{'content-type'}, qr/^application\/json/, 'API: JSON');

    is($t->post("/look/drain?peer=" . address('B1'), '')->{status}, 405,
       'API: read-only');
    is($t->get("/api/drain?peer=" . address('B1'))->{status}, 405,
       'API: not by GET');
    is($t->peer('drain_off', $t->{vars}{B1})->{state}, 'up',
       'API: unchanged');

    is($t->post('/api/drain', '')->{status}, 400, 'API: no peer');
    is($t->post('/api/drain?peer=', '')->{status}, 400, 'API: an empty one');
    is($t->post('/api/drain?peer=10.9.9.9:1', '')->{status}, 404,
       'API: an unknown peer');
    is($t->post('/api/explode?peer=' . address('B1'), '')->{status}, 404,
       'API: an unknown action');
    is($t->request('PUT /api/drain?peer=' . address('B1'), '')->{status}, 405,
       'API: not by PUT');

    (my $escaped = address('B1')) =~ s/:/%3A/;
    is($t->post("/api/drain?peer=$escaped", '')->{status}, 200,
       'API: an escaped address');
    is($t->peer('drain_off', $t->{vars}{B1})->{state}, 'draining',
       'API: the action is done');
    act('undrain', 'B1');
    is($t->post("/api/drain?peer=" . 'x' x 3000, '')->{status}, 404,
       'API: a long one');
}

ok($t->idle(), 'the counters are back at zero');

$t->done();
