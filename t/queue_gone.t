#!/usr/bin/perl

# Waiting requests whose client or worker leaves: HTTP/2 resets, closed HTTP/2
# connections, post_action, worker_shutdown_timeout.

use IO::Select;
use lib 't/lib';
use Kvroute;
use Kvroute::Http2;

my $t = Kvroute->new();

$t->backend('B0');
$t->backend('B1');

$t->{vars}{H2} = $t->port();

my $h2 = $t->version() >= '001025001' ? 'http2 on;' : '';
my $listen_h2 = $h2 ? '' : ' http2';

$t->upstream('u', 'kvroute_queue max=40 timeout=1h;',
             'B0 max_conns=1 max_fails=0');
$t->upstream('soon', 'kvroute_queue max=40 timeout=5s;',
             'B0 max_conns=1 max_fails=0');

$t->conf(<<"EOF");
worker_shutdown_timeout 1s;

    log_format q '\$request_uri \$status \$kvroute_queue_status';
    access_log access.log q;

    listen 127.0.0.1:%%H2%%$listen_h2;
    $h2
    location / { proxy_pass http://u; }

    # post_action reports a client that left, elsewhere or at the same upstream

    location /left/ { post_action /told; proxy_pass http://u; }
    location = /told { proxy_pass http://127.0.0.1:%%B1%%; }

    location /back/ { post_action /again; proxy_pass http://u; }
    location = /again { proxy_pass http://u; }

    location /late/ { post_action /told; proxy_pass http://soon; }
EOF

$t->run();

my $seed = 300;

sub queue {
    my $s = $t->status();
    return $s ? $s->{upstreams}{$_[0] // 'u'}{queue} : {};
}

sub waiting {
    my ($n, $upstream) = @_;
    return wait_for(sub { (queue($upstream)->{size} // -1) == $n });
}

sub inside { return wait_for(sub { (($t->load())[0] // 0) == 1 }) }

sub gone {
    my ($upstream) = @_;
    my $n = 0;
    $n += $_->{aborted} for @{queue($upstream)->{classes}};
    return $n;
}

sub logged {
    my ($re, $n, $name) = @_;
    ok(wait_for(sub { $n == (() = $t->access_log() =~ /$re/mg) }),
       "logged: $name") or diag($t->access_log());
}

sub served {
    my ($uri, $name) = @_;
    return scalar grep { $_ eq $uri } $t->backend_log($name // 'B0');
}

sub held {
    my ($uri, $file, %headers) = @_;
    return $t->start("POST $uri", chat(text(1000, $seed++)),
                     headers => { 'X-B0' => "wait $file", %headers });
}

sub h2_held {
    my ($s, $stream, $uri, $file) = @_;

    h2_post($s, $stream, $uri, chat(text(1000, $seed++)), 'x-b0', "wait $file");
}

# a stream that is reset leaves the queue, and its neighbour stays

{
    my $first = held('/h/first', 'h0');
    ok(inside(), 'HTTP/2: one is at the server');

    my $s = h2_connect($t);

    h2_held($s, 1, '/h/reset', 'h0');
    ok(waiting(1), 'HTTP/2: one waits');
    h2_held($s, 3, '/h/stays', 'h0');
    ok(waiting(2), 'HTTP/2: two wait on one connection');

    h2_reset($s, 1);
    ok(waiting(1), 'HTTP/2: the reset one has left');
    is(gone(), 1, 'HTTP/2: counted');
    logged(qr{^/h/reset 499 aborted}m, 1, 'reset');

    $t->step('h0');

    is($t->finish($first)->{status}, 200, 'HTTP/2: the first is answered');
    is(h2_status($s, 3), 200, 'HTTP/2: its neighbour is answered');
    is(served('/h/reset'), 0, 'HTTP/2: the peer did not get it');
    is(served('/h/stays'), 1, 'HTTP/2: the peer got the other one');
    ok($t->idle(), 'HTTP/2: no request is left in the counters');
}

# a closed connection ends all its streams

{
    my $first = held('/c/first', 'c0');
    ok(inside(), 'HTTP/2 connection: one is at the server');

    my $s = h2_connect($t);

    h2_held($s, $_, '/c/gone', 'c0') for 1, 3, 5;
    ok(waiting(3), 'HTTP/2 connection: three wait');

    close $s;
    ok(waiting(0), 'HTTP/2 connection: all of them have left');
    is(gone(), 4, 'HTTP/2 connection: counted');
    logged(qr{^/c/gone 499 aborted}m, 3, 'connection closed');

    $t->step('c0');
    is($t->finish($first)->{status}, 200, 'HTTP/2 connection: answered');
    is(served('/c/gone'), 0, 'HTTP/2 connection: the peer got none');
    ok($t->idle(), 'HTTP/2 connection: no request is left in the counters');
}

# with a post_action nginx continues the request of a client that has left: it
# leaves the queue anyway, and is not woken again

{
    my $before = gone();
    my $first = held('/p/first', 'p0');
    ok(inside(), 'post_action: one is at the server');

    my @gone = map { held('/left/x', 'p0', 'X-B1' => 'wait p1') } 1 .. 5;
    ok(waiting(5), 'post_action: five wait');

    close $_ for @gone;
    ok(wait_for(sub { served('/told', 'B1') == 5 }), 'post_action: reported');
    ok(waiting(0), 'post_action: they have left');
    is(gone() - $before, 5, 'post_action: counted');

    # if they were admitted now, this would interrupt their post_action

    $t->step('p0');
    is($t->finish($first)->{status}, 200, 'post_action: answered');
    is($t->finish(held('/p/next', 'p0'))->{status}, 200,
       'post_action: the next one too');

    $t->step('p1');
    logged(qr{^/left/x 200 aborted}m, 5, 'post_action');
    is(served('/told', 'B1'), 5, 'post_action: each is reported once');
    is(served('/left/x'), 0, 'post_action: the peer got none of them');
    ok($t->idle(), 'post_action: no request is left in the counters');
}

# a post_action to the same upstream waits there itself

{
    my $before = gone();
    my $first = held('/q/first', 'q0');
    ok(inside(), 'queued post_action: one is at the server');

    my @gone = map { held('/back/x', 'q0') } 1 .. 3;
    ok(waiting(3), 'queued post_action: three wait');

    close $_ for @gone;
    ok(wait_for(sub { gone() - $before == 3 }),
       'queued post_action: they have left');
    ok(waiting(3), 'queued post_action: and wait again');

    $t->step('q0');
    is($t->finish($first)->{status}, 200, 'queued post_action: answered');
    logged(qr{^/back/x 200 waited}m, 3, 'queued post_action');

    is(served('/again'), 3, 'queued post_action: each was admitted once');
    is(served('/back/x'), 0, 'queued post_action: the peer got none of them');
    is(gone() - $before, 3, 'queued post_action: none has left twice');
    ok($t->idle(), 'queued post_action: no request is left in the counters');
}

# the timeout of the queue falls into the post_action

{
    my $before = served('/told', 'B1');
    my $first = held('/late/first', 'l0');
    ok(inside(), 'late post_action: one is at the server');

    my $s = held('/late/x', 'l0', 'X-B1' => 'wait l1');
    ok(waiting(1, 'soon'), 'late post_action: one waits');

    close $s;
    ok(wait_for(sub { served('/told', 'B1') == $before + 1 }),
       'late post_action: it has left, and is reported');

    # a later request times out, so the timeout of the other one is over, too

    is($t->finish(held('/late/y', 'l0'))->{status}, 429,
       'late post_action: time is up');
    is(gone('soon'), 1, 'late post_action: the first one had left');

    $t->step('l1');
    logged(qr{^/late/x 200 aborted}m, 1, 'late post_action');

    $t->step('l0');
    is($t->finish($first)->{status}, 200, 'late post_action: answered');
    ok(wait_for(sub { served('/told', 'B1') == $before + 3 }),
       'late post_action: each is reported once');
    ok($t->idle(), 'late post_action: no request is left in the counters');
}

# workers that must exit: only their requests are cut

{
    my @old = $t->active_workers();
    my @cut = held('/w/first', 'w0');
    ok(inside(), 'shutdown: one is at the server');

    push @cut, map { held("/w/old$_", 'w0') } 1 .. 4;
    ok(waiting(4), 'shutdown: four wait');

    $t->reload();

    ok(wait_for(sub {
        my %now = map { $_ => 1 } $t->workers();
        return !grep { $now{$_} } @old;
    }), 'shutdown: the old workers have exited');

    is($t->finish($_)->{status}, 0, 'shutdown: cut') for @cut;

    ok($t->idle(), 'shutdown: no request is left in the counters');
    ok(waiting(0), 'shutdown: no request waits');

    # a request at another worker, which exits slightly later, can be admitted

    cmp_ok(served("/w/old$_"), '<=', $t->{workers} > 1 ? 1 : 0,
           "shutdown: old$_ was not served") for 1 .. 4;

    # a reservation that outlasts them would leave no room

    $t->step('w0');
    is($t->finish(held('/w/new', 'w0'))->{status}, 200,
       'shutdown: the next one is served');
    is(served('/w/new'), 1, 'shutdown: once');
}

$t->done();
