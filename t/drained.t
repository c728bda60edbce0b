#!/usr/bin/perl

# A drained server gets empty although all prompts share a prefix: it gets no
# prompt for a prefix that other servers have cached too, and after timeout=
# none at all.

use Digest::SHA qw(sha512);
use MIME::Base64;

use lib 't/lib';
use Kvroute;

my $t = Kvroute->new();

# Sessions are counted by the bits that their keys set.  With a fixed key the
# zone hashes them alike in each run, and no two to one bit.

Kvroute::write_file("$t->{dir}/key",
                    encode_base64(join '', map { sha512("drained$_") } 0 .. 2));
chmod 0600, "$t->{dir}/key";

$t->backend("B$_") for 0 .. 3;

$t->upstream('kv', 'B0 B1 B2 B3');
$t->upstream('sticky',
             'kvroute sticky zone=z key=$http_x_session_id;',
             'B0 B1 B2 B3');

$t->conf(<<'EOF');
    %%LOG%%
    kvroute_zone zone=z:4m key_file=%%DIR%%/key;

    kvroute_pin $http_x_pin;
    client_body_buffer_size 1m;
    proxy_http_version 1.1;
    proxy_set_header Connection "";

    location / { proxy_pass http://kv; }
    location /sticky/ { proxy_pass http://sticky; }
    location /api/ { kvroute_api write=on; access_log off; }
EOF

$t->run();

my $seed = 100;

sub address { return "127.0.0.1:$t->{vars}{$_[0]}" }

sub act {
    my ($action, $name, $more) = @_;

    return $t->post("/api/$action?peer=" . address($name) . ($more // ''), '');
}

sub drained { return $t->peer('kv', $t->{vars}{$_[0]}) }

# a conversation: the text so far, and one more turn

sub turn {
    my ($said, %headers) = @_;

    push @$said, { role => 'user', content => text(1500, $seed++) };

    my $r = $t->post('/', chat($said), headers => \%headers);

    push @$said, { role => 'assistant', content => text(300, $seed++) };

    return $t->from($r);
}

sub talk { return [ { role => 'system', content => text(6000, $_[0]) } ] }

sub session {
    my ($key, %headers) = @_;

    return $t->from($t->post('/sticky/', chat('x'),
                             headers => { %headers, 'X-Session-Id' => $key }));
}


# all have the system prompt cached, and B1 has conversations

turn(talk(1), 'X-Pin' => address("B$_")) for 0 .. 3;

my @talks = map { talk(1) } 1 .. 3;

for my $said (@talks) {
    turn($said, 'X-Pin' => address('B1')) for 1 .. 3;
    is(turn($said), 'B1', 'a conversation stays at B1');
}

session('mine', 'X-Pin' => address('B1'));
is(session('mine'), 'B1', 'a session is bound to B1');

# a system prompt that only B1 has, and that many requests use

turn(talk(2), 'X-Pin' => address('B1')) for 1 .. 5;

is(act('drain', 'B1', '&timeout=soon')->{status}, 400, 'timeout=: invalid');
is(drained('B1')->{state}, 'up', 'it is not drained');
is(act('undrain', 'B1', '&timeout=1m')->{status}, 400,
   'undrain takes no timeout');
is(act('drain', 'B1', '&timeout=1h')->{status}, 200, 'drained, for an hour');

my $p = drained('B1');
is($p->{state}, 'draining', 'its state');
is($p->{drain}{requests}, 0, 'no requests since then');
is($p->{drain}{sessions}, 0, 'no session');
cmp_ok($p->{drain}{left}, '>', 3000, 'the time left');

# new sessions go elsewhere, all of them; conversations stay

my @new = map { turn(talk(1)) } 1 .. 40;
is($t->tally(@new)->{B1} // 0, 0, 'no new session, though it has half of the prompt');

@new = map { turn(talk(2)) } 1 .. 5;
is($t->tally(@new)->{B1} // 0, 0, 'nor for a prefix that only it has for many');

my @to = map { turn($_) } @talks, @talks;
is("@to", join(' ', ('B1') x 6), 'conversations stay');

is(session('mine'), 'B1', 'a bound session stays');
@new = map { session("n$_") } 1 .. 12;
is($t->tally(@new)->{B1} // 0, 0, 'new ones go elsewhere');

$p = drained('B1');
is($p->{drain}{requests}, 7, 'requests since then');
is($p->{drain}{sessions}, 4, 'their sessions');
is($p->{state}, 'draining', 'sessions can still return');

my $labels = qq(upstream="kv",peer="@{[ address('B1') ]}");
my $m = $t->get('/kvroute/metrics')->{body};
like($m, qr/^kvroute_peer_drain_requests\{\Q$labels\E\} 7$/m, 'the metric');
like($m, qr/^kvroute_peer_drain_sessions\{\Q$labels\E\} 4$/m, 'the metric of sessions');
unlike($m, qr/^kvroute_peer_drain_requests\{[^}]*\Q:$t->{vars}{B0}\E/m,
       'no series of others');

# a reload keeps all this

$t->reload();
is(drained('B1')->{drain}{requests}, 7, 'kept over a reload');
cmp_ok(drained('B1')->{drain}{left}, '>', 3000, 'and its time');

# running requests end first; then the server is empty

my $end = $t->hold(1, '/', chat($talks[0]));
my ($held) = grep { drained($_)->{active} } qw(B0 B1 B2 B3);
is($held, 'B1', 'a request runs');

is(act('drain', 'B1', '&timeout=10ms')->{status}, 200, 'the timeout is over');
ok(wait_for(sub { drained('B1')->{drain}{left} == 0 }), 'no time is left');
is(drained('B1')->{state}, 'draining', 'but a request runs');

@to = map { turn($_) } @talks;
is($t->tally(@to)->{B1} // 0, 0, 'conversations go elsewhere');
isnt(session('mine'), 'B1', 'and sessions');

$end->();
ok(wait_for(sub { drained('B1')->{state} eq 'drained' }), 'it is empty');
ok(wait_for(sub { $t->log() =~ /\[notice\].*is drained/ }), 'the log says so');
like($t->get('/kvroute/metrics')->{body},
     qr/^kvroute_peer_state\{\Q$labels\E,state="drained"\} 1$/m, 'the metric');

# all are drained: then none counts as drained, but one with time left comes
# first

act('drain', $_) for qw(B0 B2);
@to = map { turn(talk(3)) } 1 .. 8;
is($t->tally(@to)->{B3}, 8, 'the last one that is not drained');

act('drain', 'B3');
@to = map { turn(talk(3 + $_)) } 1 .. 12;
is($t->tally(@to)->{B1} // 0, 0, 'not the one whose timeout is over');
is(scalar(grep { $t->tally(@to)->{$_} } qw(B0 B2 B3)), 3, 'all of the others');

act('drain', $_, '&timeout=10ms') for qw(B0 B2 B3);
ok(wait_for(sub { !grep { drained($_)->{drain}{left} } qw(B0 B2 B3) }),
   'all timeouts are over');
@to = map { turn(talk(20 + $_)) } 1 .. 12;
is(scalar(grep { $t->tally(@to)->{$_} } qw(B0 B1 B2 B3)), 4, 'all are used');

# undrained

act('undrain', $_) for qw(B0 B1 B2 B3);
is(drained('B1')->{state}, 'up', 'undrained');
ok(!drained('B1')->{drain}, 'and no "drain" in the status');

act('drain', 'B1');
$p = drained('B1');
is("$p->{drain}{requests} $p->{drain}{sessions}", '0 0', 'counted from 0');
ok(!exists $p->{drain}{left}, 'without a timeout');

$t->done();
