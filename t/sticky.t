#!/usr/bin/perl

# Sessions: which keys name one, which server it is bound to, and what happens
# if that server is full, drained or dead, or if the list of servers changes.

use lib 't/lib';
use Kvroute;
use Time::HiRes qw(time);

my $t = Kvroute->new();

$t->backend("B$_") for 0 .. 3;
$t->{vars}{DEAD} = $t->port();
$t->{vars}{EXTRA} = '';

$t->upstream('u', 'kvroute sticky zone=z;', 'B0 B1 B2 fail_timeout=1h',
             '%%EXTRA%%');
$t->upstream('plain', 'plain', 'B0 B1 B2');
$t->upstream('limited', 'kvroute sticky zone=z max_pending=8k;',
             'B0 B1 max_conns=1', 'B2 backup');
$t->upstream('grows', 'kvroute sticky zone=z;', 'B0', '%%EXTRA%%');
$t->upstream('failing', 'kvroute sticky zone=z;', 'B0 B1 B2 fail_timeout=2s');

my $conf = <<'EOF';
    %%LOG%%
    kvroute_zone zone=z:4m;

    client_body_buffer_size 1m;
    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_next_upstream error timeout non_idempotent;

    location / { proxy_pass http://u; }

    location /short/ {
        kvroute_policy sticky timeout=2s;
        proxy_pass http://u;
    }
    location /auto/ {
        kvroute_policy sticky key=auto;
        proxy_pass http://u;
    }
    location /keys/ {
        kvroute_policy sticky key=$cookie_sid$arg_sid;
        proxy_pass http://u;
    }
    location /tenant/ {
        kvroute_policy sticky;
        kvroute_salt $http_x_tenant;
        proxy_pass http://u;
    }

    location /api/ { kvroute_api write=on; }
EOF

$t->conf($conf);
$t->run();

sub session { return ('X-Session-Id' => $_[0]) }

my $body = chat('hello');

# the server of a session; the request binds it as any request does

sub home { return $t->to($_[0], $body, session($_[1])) }


# no key: nginx's round robin, with and without a body

{
    my @own = map { $t->to('/?n=k0', $body) } 1 .. 9;
    my @nginx = map { $t->to('/plain/', $body) } 1 .. 9;

    is("@own", "@nginx", 'no key: round robin');
    is($t->receipt('k0')->{reason}, 'turn', 'no key: the reason');
    is($t->receipt('k0')->{session}, '-', 'no key: no session');

    my @get = map { $t->from($t->get('/')) } 1 .. 6;
    is_deeply($t->tally(@get), { B0 => 2, B1 => 2, B2 => 2 },
              'no key, no body: round robin');
    is($t->to('/', $body, session('')) ne '', 1, 'an empty key is none');
}

# sessions are spread by round robin, and stay at their servers

{
    my %home = map { ($_ => $t->to("/?n=new$_", $body, session("s$_"))) }
               1 .. 12;
    my @again = grep { home('/', "s$_") eq $home{$_} } 1 .. 12;

    is(scalar(@again), 12, 'each session stays');
    is_deeply($t->tally(values %home), { B0 => 4, B1 => 4, B2 => 4 },
              'new sessions are spread evenly');
    is($t->receipt('new1')->{reason}, 'bind', 'the first request binds');

    $t->to('/?n=old1', $body, session('s1'));
    is($t->receipt('old1')->{reason}, 'session', 'the next one follows');
    is($t->receipt('old1')->{session}, 's1', 'the session is logged');

    is($t->from($t->get('/', headers => { session('s1') })), $home{1},
       'a request without a body follows');
    is($t->to('/', 'no JSON', session('s1')), $home{1},
       'a request with any body follows');
    is($t->to('/limited/', $body, session('s1')) =~ /^B/, 1,
       'another upstream has its own bindings');

    # a reload, and one with another server

    home('/grows/', "g$_") for 1 .. 6;

    $t->reload();
    @again = grep { home('/', "s$_") eq $home{$_} } 1 .. 12;
    is(scalar(@again), 12, 'a reload keeps the bindings');

    $t->{vars}{EXTRA} = "server 127.0.0.1:$t->{vars}{B3};";
    $t->conf($conf);
    $t->reload();

    @again = grep { home('/', "s$_") eq $home{$_} } 1 .. 12;
    is(scalar(@again), 12, 'an added server keeps the bindings');

    my @grown = map { home('/grows/', "g$_") } 1 .. 6;
    is("@grown", 'B0 B0 B0 B0 B0 B0', 'a second server keeps the bindings');

    my @new = map { home('/', "t$_") } 1 .. 8;
    is($t->tally(@new)->{B3}, 2, 'the added server gets its share of new sessions');

    $t->{vars}{EXTRA} = '';
    $t->conf($conf);
    $t->reload();

    my @moved = grep { $new[$_ - 1] eq 'B3' } 1 .. 8;
    my @to = map { home('/', "t$_") } @moved;
    is(scalar(grep { /^B[012]$/ } @to), 2, 'sessions leave a removed server');
    is(join(' ', map { home('/', "t$_") } @moved), "@to",
       'and stay at their new servers');
}

# keys

{
    my $home = $t->to('/keys/?sid=x', $body);
    is($t->to('/keys/', $body, Cookie => 'sid=x'), $home,
       'the key is built of variables');
    my @to = map { $t->to("/keys/?sid=x$_", $body) } 1 .. 6;
    is_deeply($t->tally(@to), { B0 => 2, B1 => 2, B2 => 2 },
              'sessions with other keys are spread');

    # tenants do not share sessions

    my %seen;
    $seen{$t->to('/tenant/', $body, session('same'), 'X-Tenant' => "t$_")}++
        for 1 .. 6;
    is_deeply(\%seen, { B0 => 2, B1 => 2, B2 => 2 },
              'the same key of several tenants names several sessions');
}

# key=auto: every hint binds, and the more trusted hint wins

{
    my @hints = (
        [ header => 'X-Session-Id' ],
        [ header => 'X-Claude-Code-Session-Id' ],
        [ header => 'X-Session-Affinity' ],
        [ header => 'Session-Id' ],
        [ header => 'X-Dynamo-Session-Id' ],
        [ header => 'X-SMG-Routing-Key' ],
        [ body => 'prompt_cache_key' ],
        [ body => 'session_id' ]
    );

    my $ask = sub {
        my ($id, %value) = @_;
        my (%h, %b);

        for my $hint (@hints) {
            my ($where, $name) = @$hint;
            next unless defined $value{$name};
            ($where eq 'header' ? \%h : \%b)->{$name} = $value{$name};
        }

        return $t->to("/auto/?n=$id", chat('hello', %b), %h);
    };

    for my $i (0 .. $#hints) {
        my $name = $hints[$i][1];
        my @to = map { $ask->("h$i$_", $name => "v$i") } 1 .. 4;

        is(scalar(keys %{$t->tally(@to)}), 1, "auto: $name");
        is($t->receipt("h${i}4")->{session}, "v$i", "auto: $name is logged");

        # with all less trusted hints in the request the result is the same

        my %all = map { ($hints[$_][1] => "v$_") } $i .. $#hints;
        $ask->("all$i", %all);
        is($t->receipt("all$i")->{session}, "v$i",
           "auto: $name wins over less trusted hints");
    }

    # "user" and a name in a message are no hints

    my @to = map { $t->to('/auto/', chat('hello', user => 'me',
                          metadata => { session_id => 'x' })) } 1 .. 6;
    is_deeply($t->tally(@to), { B0 => 2, B1 => 2, B2 => 2 },
              'auto: "user" names no session');

    # previous_response_id (t/usage.t tests known ones): an unknown one does not
    # prevent other hints

    $ask->('prev', 'X-Session-Id' => 'v0');
    my $r = $t->post('/auto/?n=prev2', chat('hello',
                     previous_response_id => 'resp_1'),
                     headers => { 'X-Session-Id' => 'v0' });
    is($t->receipt('prev2')->{session}, 'v0',
       'auto: with an unknown id the next hint is used');
    is($t->receipt('prev2')->{name}, $t->receipt('prev')->{name},
       'auto: the session stays at its server');
}

# a full peer: this request goes elsewhere, the session stays

for my $case ([ 'max_conns', 'x' ], [ 'max_pending', text(9000, 1) ]) {
    my ($what, $text) = @$case;

    my $home = home('/limited/', $what);
    my ($other) = grep { $_ ne $home } qw(B0 B1);

    my $end = $t->hold(1, '/limited/', chat($text), session($what));
    is($t->peer('limited', $t->{vars}{$home})->{active}, 1,
       "$what: the session's peer is full");

    my $r = $t->post("/limited/?n=over$what", $body,
                     headers => { session($what) });
    is($t->from($r), $other, "$what: the request goes to the other server");
    is($t->from($end->()), $home, "$what: the first request was at the session's server");

    is(home('/limited/', $what), $home, "$what: the session has stayed");
}

# both are full: a backup server is used, and the session stays

{
    my $home = home('/limited/', 'both');
    my $end = $t->hold(2, '/limited/', $body, session('both'));

    is(home('/limited/', 'both'), 'B2', 'all full: a backup');
    $end->();
    is(home('/limited/', 'both'), $home, 'all full: the session has stayed');
}

# draining: bound sessions stay, new ones go elsewhere

{
    my %home = map { ($_ => home('/', "d$_")) } 1 .. 9;
    my $addr = "127.0.0.1:$t->{vars}{B1}";

    is($t->post("/api/drain?peer=$addr", '')->{status}, 200, 'draining');

    my @stay = grep { home('/', "d$_") eq $home{$_} } 1 .. 9;
    is(scalar(@stay), 9, 'draining: sessions stay');

    my @new = map { home('/', "e$_") } 1 .. 8;
    ok(!$t->tally(@new)->{B1}, 'draining: new sessions go elsewhere');

    is($t->post("/api/undrain?peer=$addr", '')->{status}, 200, 'undrained');

    @new = map { home('/', "f$_") } 1 .. 9;
    is($t->tally(@new)->{B1}, 3, 'undrained: new sessions come');
}

# a dead peer: the session is bound to another one, and does not return

{
    my $home = home('/failing/', 'dead');
    my $r = $t->post('/failing/?n=dead1', $body,
                     headers => { session('dead'), "X-$home" => 'close' });
    my $next = $t->from($r);

    is($r->{status}, 200, 'dead: served elsewhere');
    isnt($next, $home, 'dead: elsewhere');
    is($t->receipt('dead1')->{reason}, 'retry', 'dead: a retry');

    my @to = map { home('/failing/', 'dead') } 1 .. 4;
    is("@to", join(' ', ($next) x 4), 'dead: bound to the new server');

    # until the peer is back, which a request without a session shows

    ok(wait_for(sub { $t->to('/failing/', $body) eq $home }), 'it is back');

    @to = map { home('/failing/', 'dead') } 1 .. 4;
    is("@to", join(' ', ($next) x 4), 'dead: no return');
}

# timeout: use refreshes it, then the session is forgotten

{
    my $home = home('/short/', 'short');
    my $until = time() + 4;

    # in use for longer than the timeout; repeated if the test itself paused that
    # long on a busy machine

    my $moved = 0;
    my $last = time();

    while ($last < $until) {
        my $to = home('/short/', 'short');

        if (time() - $last > 1) {
            ($home, $moved, $until) = ($to, 0, time() + 4);
        }

        $moved++ if $to ne $home;
        $last = time();
        select(undef, undef, undef, 0.2);
    }

    is($moved, 0, 'timeout: refreshed by use');

    # bindings without requests: an expired one is bound anew

    my $id = 0;
    my $gone = wait_for(sub {
        select(undef, undef, undef, 2.2);
        $id++;
        home("/short/?n=short$id", 'short');
        return $t->receipt("short$id")->{reason} eq 'bind';
    });

    ok($gone, 'timeout: forgotten');
}

ok($t->idle(), 'the counters are back at zero');

$t->done();
