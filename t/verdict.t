#!/usr/bin/perl

# The health of an upstream: its colour and causes; the history of the last
# minutes survives a reload; trace ids of decision records; the location of the
# API.

use lib 't/lib';
use Kvroute;

my $t = Kvroute->new();

$t->engines(3, '--hardware', 'none', '--model', 'm');
$t->backend('B');

$t->upstream('llm', 'kvroute_eject off;', 'E0 E1 E2 max_fails=0');
$t->upstream('busy', 'kvroute_queue max=1 timeout=1h;',
             'B max_conns=1 max_fails=0');

my $main = <<'EOC';
    location /v1/ { kvroute_pin $http_x_pin; proxy_pass http://llm; }
    location /busy/ { proxy_pass http://busy; }
    location /look/ { kvroute_api; }
    location /act/ { kvroute_api write=on; }
EOC

$t->conf($main)->run();

sub health {
    my $s = $t->status();
    return timeless(($_[0] ? $s->{upstreams}{$_[0]} : $s)->{health});
}

is_deeply(health(), { state => 'green', why => [] }, 'all are green');
is_deeply(health('llm'), { state => 'green', why => [] }, 'llm is green');

is($t->status()->{api}, '/act/', 'the location of the API');
# --- traces

my @peers = map { "127.0.0.1:$t->{vars}{\"E$_\"}" } 0 .. 2;
my $id = '4bf92f3577b34da6a3ce929d0e0e4736';
my $body = chat(text(4000, 1));

sub trace {
    my ($value) = @_;

    is($t->post('/v1/chat/completions', $body,
                headers => { traceparent => $value,
                             'X-Pin' => $peers[0] })->{status}, 200, 'served');

    return $t->status()->{receipts}[0]{trace_id};
}

is(trace("00-$id-00f067aa0ba902b7-01"), $id, 'the id of the trace');
is(trace("00-$id-00f067aa0ba902b7-01<b>"), undef, 'other text of a client is not logged');
is(trace('x' x 4000), undef, 'a long header is not logged');

# --- one server fails fast

$t->control($t->{vars}{E1}, { fault => 'status=500' });

is($t->post('/v1/chat/completions', $body,
            headers => { 'X-Pin' => $peers[1] })->{status}, 500, 'it fails')
    for 1 .. 6;

my $h = health('llm');
is($h->{state}, 'red', 'red');
my %fails = (code => 'errors', state => 'red', requests => 6, of => 9,
             percent => 100, percent_of_all => 66,
             servers => [{ name => $peers[1], state => 'up', reason => '5xx' }]);
my $since = $t->status()->{health}{why}[0]{since};
my $up = $t->peer('llm', $t->{vars}{E1})->{since};
ok($up le $since, 'it was up before it failed');
is_deeply($h->{why}[0], \%fails, 'the cause names the server');
is(health()->{state}, 'red', 'the health of all is red');
is_deeply(health()->{why}[0], { %fails, upstream => 'llm' },
          'the cause names the upstream');
is(health('busy')->{state}, 'green', 'the other upstream is green');

like($t->get('/kvroute/metrics')->{body},
     qr/^kvroute_upstream_health\{upstream="llm",state="red"\} 1$/m, 'metric');
is($t->peer('llm', $t->{vars}{E1})->{minute}{errors}, 6, 'errors of a minute');

# --- ten minutes of history, and a reload

sub history { return @{$t->status()->{upstreams}{llm}{history}} }

ok(wait_for(sub { grep { $_->{errors} == 6 } history() }), 'history')
    or diag(explain([history()]));

my ($before) = grep { $_->{errors} == 6 } history();
is($before->{requests}, 9, 'requests of the step') if history() == 1;

$t->reload();
is_deeply((grep { $_->{time} eq $before->{time} } history())[0], $before,
          'a reload keeps the history');
is(health('llm')->{state}, 'red', 'a reload keeps the health');
is($t->status()->{health}{why}[0]{since}, $since, 'a reload keeps the time of the cause');
is($t->peer('llm', $t->{vars}{E1})->{since}, $up, 'a reload keeps the time of the state');

my $time = qr/(\d{10})/;
like($t->get('/kvroute/metrics')->{body},
     qr/^kvroute_upstream_cause_timestamp_seconds\{upstream="llm",(?#
       )code="errors",state="red",peer="$peers[1]"\} $time$/m, 'metric');
like($t->get('/kvroute/metrics')->{body},
     qr/^kvroute_peer_state_timestamp_seconds\{upstream="llm",(?#
       )peer="$peers[1]"\} $time$/m, 'metric');
like($t->get('/kvroute/metrics')->{body},
     qr/^kvroute_peer_reason\{upstream="llm",peer="$peers[1]",(?#
       )reason="5xx"\} 1$/m, 'metric');

# --- a 4xx, which is the client's fault until the server is ejected for it

for my $i (0, 1) {
    my $reason = $t->peer('llm', $t->{vars}{"E$i"})->{reason};

    $t->control($t->{vars}{"E$i"}, { fault => 'status=400' });
    is($t->post('/v1/chat/completions', $body,
                headers => { 'X-Pin' => $peers[$i] })->{status}, 400, 'a 400');

    my $p = $t->peer('llm', $t->{vars}{"E$i"});
    is($p->{minute}{errors_4xx}, 1, 'a 4xx is counted');
    is($p->{reason}, $reason, 'a 4xx is no reason');
}

# --- a server is drained

sub drained {
    return { code => 'drained', state => 'amber', number => 1, of => 3,
             servers => [{ name => $peers[2], state => $_[0] }] };
}

sub cause {
    my ($code, $upstream) = @_;

    return (grep { $_->{code} eq $code } @{health($upstream)->{why}})[0];
}

$t->post("/act/drain?peer=$peers[2]", '');
is_deeply(cause('drained', 'llm'), drained('draining'), 'the cause: draining');

$t->post("/act/drain?peer=$peers[2]&timeout=1s", '');
wait_for(sub { $t->peer('llm', $t->{vars}{E2})->{state} eq 'drained' });
is_deeply(cause('drained', 'llm'), drained('drained'), 'the cause: drained');

# --- more requests than the server may have

my @held = ($t->start('POST /busy/', chat('a'),
                      headers => { 'X-B' => 'wait one' }));
ok(wait_for(sub { $t->peer('busy', $t->{vars}{B})->{active} == 1 }), 'one request runs');
push @held, $t->start('POST /busy/', chat('b'));
ok(wait_for(sub { $t->status()->{upstreams}{busy}{queue}{size} == 1 }),
   'one request waits');
is($t->post('/busy/', chat('c'))->{status}, 429, 'one request is rejected') for 1 .. 4;

$h = health('busy');
is($h->{state}, 'red', 'red');
is_deeply($h->{why}[0], { code => 'rejects', state => 'red', rejects => 4,
                          of => 5, percent => 80, caps => { max_conns => 1 } },
          'the cause: rejects');

is(join(' ', map { "$_->{upstream}:$_->{code}" } @{health()->{why}}),
   'llm:errors busy:rejects llm:drained', 'red causes come first');

$t->step('one');
$t->finish($_) for @held;

# a zone of another size starts empty, the counters of the queue do not

my $conf = Kvroute::slurp("$t->{dir}/nginx.conf");
Kvroute::write_file("$t->{dir}/nginx.conf", $conf =~ s/zone=z:2m/zone=z:3m/r);
$t->reload();

ok(wait_for(sub { @{$t->status()->{upstreams}{busy}{history}} }),
   'the history has begun');
is($t->status()->{upstreams}{busy}{history}[0]{rejects}, 0, 'no new rejects');
is_deeply(health('busy'), { state => 'green', why => [] }, 'no rejects: green');

# --- an ingress controller has no endpoint for an upstream: its socket is no
# server

$t->upstream('none', 'server unix:%%DIR%%/nginx-502-server.sock;');
$t->conf($main);
$t->reload();

$h = health('none');
is($h->{state}, 'red', 'red without a request');
is_deeply($h->{why}[0],
          { code => 'none_up', state => 'red', number => 1, of => 1, servers => [
              { name => "unix:$t->{dir}/nginx-502-server.sock",
                state => 'placeholder' } ] }, 'the cause: a placeholder');
like($t->get('/kvroute/metrics')->{body},
     qr/^kvroute_peer_state\{upstream="none",.*state="placeholder"\} 1$/m,
     'a metric has the cause');

$t->done();
