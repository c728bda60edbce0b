#!/usr/bin/perl

# The queue: which requests wait, the order of admission, and how waiting ends.

use IO::Select;
use lib 't/lib';
use Kvroute;

my $t = Kvroute->new();

$t->backend('B0');
$t->backend('B1');

$t->upstream('u', 'kvroute_queue max=40 timeout=1h;',
             'B0 max_conns=1 max_fails=0');
$t->upstream('pending', 'kvroute kv_cache zone=z max_pending=8k;',
             'kvroute_queue max=40 timeout=1h;', 'B0 max_fails=0');
$t->upstream('small', 'kvroute_queue max=2 timeout=1h;',
             'B0 max_conns=1 max_fails=0');
$t->upstream('soon', 'kvroute_queue max=2 timeout=50ms;',
             'B0 max_conns=1 max_fails=0');
$t->upstream('second', 'kvroute_queue max=40 timeout=1h;',
             'B0 max_conns=1 max_fails=0');
$t->upstream('two', 'kvroute_queue max=40 timeout=1h;',
             'B0 B1 max_conns=1 max_fails=0');
$t->upstream('backup', 'kvroute_queue max=40 timeout=1h;',
             'B0 max_conns=1 max_fails=0',
             'B1 max_conns=1 max_fails=0 backup');

my $conf = <<'EOF';
    log_format q '$request_uri $status $kvroute_queue_status '
                 '$kvroute_queue_time $kvroute_reason';
    access_log access.log q;

    map $http_x_pool $pool { default u; second second; none nothing; }

    kvroute_request priority=$http_x_class max_priority=$http_x_max
                    tenant=$http_x_tenant weight=$http_x_weight
                    deadline=$http_x_deadline;

    location / { proxy_pass http://u; }
    location /named/ { kvroute_request upstream=$pool; proxy_pass http://$pool; }
    location /errors/ { error_page 429 =503 /sorry; proxy_pass http://small; }
    location /again/ { error_page 429 @again; proxy_pass http://small; }
    location /recursive/ {
        recursive_error_pages on;
        error_page 429 @again;
        proxy_pass http://small;
    }
    location /other/ { error_page 429 = @other; proxy_pass http://small; }
    location /others/ { error_page 429 = @soon; proxy_pass http://small; }
    location @other { proxy_pass http://127.0.0.1:%%B1%%; }
    location @soon { proxy_pass http://soon; }
    location @again { proxy_pass http://small; }
    location /sorry { return 200 "sorry"; }
    location /bypass/ { kvroute_policy off; proxy_pass http://u; }
    location /two/ {
        proxy_next_upstream error timeout non_idempotent;
        proxy_pass http://two;
    }
    location /tried/ { try_files /nothing @u; proxy_pass http://two; }
    location /away/ { try_files /nothing @static; proxy_pass http://two; }
    location @u { proxy_pass http://u; }
    location @static { proxy_pass http://127.0.0.1:%%B1%%; }
EOF

$t->conf($conf);
$t->run();

my $seed = 100;

sub size { return $t->status()->{upstreams}{$_[0] // 'u'}{queue}{size} }

sub class {
    my ($upstream, $class) = @_;
    return $t->status()->{upstreams}{$upstream}{queue}{classes}[$class];
}

# a request that is answered when FILE exists

sub held {
    my ($uri, $file, $bytes, %headers) = @_;
    return $t->start("POST $uri", chat(text($bytes // 1000, $seed++)),
                     headers => { 'X-B0' => "wait $file", %headers });
}

sub go { $t->step($_[0]) }

sub waiting {
    my ($n, $upstream) = @_;
    return wait_for(sub { size($upstream) == $n });
}

# returns the order in which the backend got the requests

sub served {
    my ($prefix) = @_;
    return join ' ', map { /^\Q$prefix\E(\S+)/ ? $1 : () }
                     $t->backend_log('B0');
}

sub served_by {
    my ($name, $uri) = @_;
    return grep { $_ eq $uri } $t->backend_log($name);
}

# a request is logged shortly after its response

sub logged {
    my ($re, $name) = @_;
    ok(wait_for(sub { $t->access_log() =~ $re }), "logged: $name")
        or diag($t->access_log());
}

# order by class, then by size; classes and sizes are unlike the order of
# arrival

{
    my @s = held('/o/first', 'o0');
    ok(wait_for(sub { ($t->load())[0] == 1 }), 'one is at the server');

    my @order = ([ 'big', 50_000, {} ], [ 'small', 1_000, {} ],
                 [ 'low', 1_000, { 'X-Class' => 'low' } ],
                 [ 'high', 90_000, { 'X-Class' => 'high' } ],
                 [ 'capped', 500, { 'X-Class' => '0', 'X-Max' => 'batch' } ],
                 [ 'number', 500, { 'X-Class' => '2' } ]);

    my $n = 0;

    for my $o (@order) {
        push @s, held("/o/$o->[0]", 'o1', $o->[1], %{$o->[2]});
        ok(waiting(++$n), "$o->[0] waits");
    }

    is(class('u', 1)->{size}, 1, 'one of class 1');
    is(class('u', 3)->{size}, 2, 'two of class 3');
    is(($t->load())[0], 1, 'waiting requests are at no peer');

    go('o0');
    go('o1');

    is($t->finish($_)->{status}, 200, 'answered') for @s;

    is(served('/o/'), 'first high number small big low capped', 'in order');
    ok($t->idle(), 'no request is left in the counters');
    is(size(), 0, 'no request waits');

    logged(qr{^/o/first 200 passed 0\.000 }m, 'passed');
    logged(qr{^/o/big 200 waited \d+\.\d{3} (?!-)\S+$}m, 'waited');
}

# tenants of weights 1 and 3, with equal requests

{
    my @s = held('/t/first', 't0');
    ok(wait_for(sub { ($t->load())[0] == 1 }), 'tenants: one is at the server');

    for my $i (1 .. 12) {
        push @s, held("/t/a", 't0', 3000, 'X-Tenant' => 'a');
        push @s, held("/t/b", 't0', 3000, 'X-Tenant' => 'b', 'X-Weight' => 3);
    }

    ok(waiting(24), 'tenants: all wait');
    go('t0');
    $t->finish($_) for @s;

    my @first = (split ' ', served('/t/'))[1 .. 12];
    my $a = grep { $_ eq 'a' } @first;

    ok($a >= 2 && $a <= 4, "tenants: $a of the first 12 have weight 1 of 4");
}

# by work: a request larger than the cap is admitted, the next one waits

{
    my @s = held('/pending/a', 'p0', 30_000);
    ok(wait_for(sub { ($t->load())[0] == 1 }), 'pending: one is at the server');

    push @s, held('/pending/b', 'p0', 1_000);
    ok(waiting(1, 'pending'), 'pending: the next one waits');

    push @s, $t->start('POST /pending/c', chat(text(1000, 1)),
                       headers => { 'X-B0' => 'wait p0' });
    ok(waiting(2, 'pending'), 'pending: and the one after it');

    go('p0');
    is($t->finish($_)->{status}, 200, 'pending: answered') for @s;
    ok($t->idle(), 'pending: nothing is counted');
}

# full: rejected, or a page of the operator's

{
    my @s = held('/small/a', 's0');
    ok(wait_for(sub { ($t->load())[0] == 1 }), 'small: one is at the server');

    push @s, held('/small/b', 's0');
    waiting(1, 'small');
    push @s, held('/small/c', 's0');
    ok(waiting(2, 'small'), 'small: two wait');

    my $r = $t->post('/small/d', chat('x'));

    is($r->{status}, 429, 'full: rejected');
    like($r->{head}, qr/^Retry-After: \d+\s*$/m, 'full: Retry-After');
    like($r->{head}, qr/^Content-Type: application\/json\s*$/m, 'full: type');
    like($r->{body}, qr/"code":"queue_full"/, 'full: the reason');

    is($t->post('/errors/d', chat('x'))->{body}, 'sorry',
       'full: a page of the operator');

    # another location answers: no Retry-After

    $r = $t->post('/other/d', chat('x'));
    is($r->{status}, 200, 'full: passed on');
    unlike($r->{head}, qr/^Retry-After:/m, 'full: and answered');

    $r = $t->start('POST /others/d', chat('x'),
                   headers => { 'X-B0' => 'wait s0' });
    ok(wait_for(sub { ($t->load())[0] == 2 }), 'full: passed on, to a queue');

    my $late = $t->post('/others/e', chat('x'));
    is($late->{status}, 429, 'full: rejected there');
    is(() = $late->{head} =~ /^Retry-After:/mg, 1, 'full: one Retry-After');
    push @s, $r;

    # an error_page does not bypass the queue, and makes no loop

    for my $name ('again', 'recursive') {
        $r = $t->post("/$name/d", chat('x'));
        is($r->{status}, 429, "full: $name, rejected");
        like($r->{body}, qr/"code":"queue_full"/, "full: $name, the reason");
        is(() = $r->{head} =~ /^Retry-After:/mg, 1,
           "full: $name, Retry-After");
    }

    # a more urgent request displaces a less urgent one

    push @s, held('/small/high', 's0', 1000, 'X-Class' => 'high');

    # the later one; but with several workers, a worker displaces its own

    my ($who) = IO::Select->new(@s[1, 2])->can_read(60);

    is($who, $s[2], 'shed: the later one') if $t->{workers} == 1;

    my $shed = $t->finish($who // $s[2]);

    is($shed->{status}, 429, 'shed: rejected');
    like($shed->{body}, qr/"code":"queue_shed"/, 'shed: the reason');
    is(size('small'), 2, 'shed: its place is taken');

    go('s0');
    is($t->finish($_)->{status}, 200, 'small: answered')
        for grep { $_ != $who } @s;
    is(class('small', 3)->{shed}, 1, 'shed: counted');
    is(class('small', 3)->{full}, 7, 'full: counted, each once');
    like($t->get('/kvroute/metrics')->{body},
         qr{^kvroute_queue_\w+_total\{upstream="small",.*\} 7(?:\.0+)?$}m,
         'full: for Prometheus');
}

# the timeout of the queue, or the deadline of the request

{
    my @s = held('/soon/a', 'w0');
    ok(wait_for(sub { ($t->load())[0] == 1 }), 'soon: one is at the server');

    my $r = $t->post('/soon/b', chat('x'));

    is($r->{status}, 429, 'timeout: rejected');
    like($r->{body}, qr/"code":"queue_timeout"/, 'timeout: the reason');

    $r = $t->request('POST /soon/c', chat('x'),
                     headers => { 'X-Deadline' => '5ms' });

    is($r->{status}, 429, 'deadline: rejected');
    like($r->{body}, qr/"code":"queue_deadline"/, 'deadline: the reason');

    go('w0');
    is($t->finish($_)->{status}, 200, 'soon: answered') for @s;
    logged(qr{^/soon/b 429 timeout 0\.\d+}m, 'timeout');
}

# clients that leave while they wait

{
    my @s = held('/g/a', 'g0');
    ok(wait_for(sub { ($t->load())[0] == 1 }), 'left: one is at the server');

    my @gone = map { held("/g/gone", 'g0') } 1 .. 5;
    push @s, held('/g/b', 'g0');
    ok(waiting(6), 'left: six wait');

    close $_ for @gone;
    ok(waiting(1), 'left: one remains');

    go('g0');
    is($t->finish($_)->{status}, 200, 'left: answered') for @s;
    is(served('/g/'), 'a b', 'left: the peer got none of them');
    is(class('u', 3)->{aborted}, 5, 'left: counted');
    ok(wait_for(sub { 5 == (() = $t->access_log()
                                 =~ m{^/g/gone 499 aborted }mg) }),
       'left: logged');
}

# an upstream by a variable, and requests that do not wait

{
    my @s = held('/named/a', 'n0');
    ok(wait_for(sub { ($t->load())[0] == 1 }), 'named: one is at the server');

    push @s, held('/named/b', 'n0');
    ok(waiting(1), 'named: the next one waits');

    is($t->get('/bypass/')->{status}, 502, 'bypass does not wait');

    my $get = $t->start('GET /n/get');
    ok(waiting(2), 'a request without a body waits, too');

    go('n0');
    is($t->finish($_)->{status}, 200, 'named: answered') for @s, $get;

    is($t->request('POST /named/c', chat('x'),
                   headers => { 'X-Pool' => 'none' })->{status}, 502,
       'an unknown upstream');
}

# a peer fails while all others are full

for my $method ('POST', 'GET') {
    my ($go, $dir) = $method eq 'POST' ? ('y', '/two') : ('Y', '/two/get');

    my @s = held("$dir/a", "${go}0", 1000, 'X-B1' => "wait ${go}0");
    ok(wait_for(sub { served_by('B0', "$dir/a") || served_by('B1', "$dir/a") }),
       "retry, $method: one is at a server");

    my ($bad, $other) = served_by('B0', "$dir/a") ? ('B0', 'B1')
                                                  : ('B1', 'B0');

    push @s, held("$dir/b", "${go}1", 1000, 'X-B1' => "wait ${go}1");
    ok(wait_for(sub { ($t->load())[0] == 2 }), 'retry: two are at servers');

    push @s, $t->start("$method $dir/c",
                       $method eq 'POST' ? chat(text(1000, $seed++)) : undef,
                       headers => { "X-$bad" => 'close',
                                    "X-$other" => "wait ${go}2" });
    ok(waiting(1, 'two'), 'retry: one waits');

    go("${go}0");
    is($t->finish($s[0])->{status}, 200, 'retry: its peer is free');
    ok(wait_for(sub { served_by($other, "$dir/c") }),
       'retry: it fails, and the other one is used anyway');

    go("${go}1");
    go("${go}2");
    is($t->finish($_)->{status}, 200, 'retry: answered') for @s[1, 2];
    ok($t->idle(), 'retry: no request is left in the counters');
}

# backup servers, if the others are full, as without a queue

{
    my @s = map { held("/backup/$_", 'x0', 1000, 'X-B1' => 'wait x0') }
            'a', 'b';
    ok(wait_for(sub { ($t->load())[0] == 2 }), 'backup: two are at servers');

    push @s, held('/backup/c', 'x0', 1000, 'X-B1' => 'wait x0');
    ok(waiting(1, 'backup'), 'backup: the third waits');

    go('x0');
    is($t->finish($_)->{status}, 200, 'backup: answered') for @s;
}

# admitted at one upstream and redirected to another: it has no reservation
# there

{
    my @s = held('/tried/a', 'v0', 1000);
    ok(wait_for(sub { served_by('B0', '/tried/a') }),
       'redirect: one is at the server');
    ok(wait_for(sub { ($t->load())[0] == 1 }), 'redirect: in one place');

    push @s, held('/tried/b', 'v0', 1000);
    ok(waiting(1), 'redirect: the next one waits at the other');
    is(($t->load())[0], 1, 'redirect: without a reservation');

    push @s, held('/away/c', 'v0', 1000, 'X-B1' => 'wait v0');
    ok(wait_for(sub { served_by('B1', '/away/c') }), 'redirect: to no queue');
    is(($t->load())[0], 1, 'redirect: without a reservation');

    go('v0');
    is($t->finish($_)->{status}, 200, 'redirect: answered') for @s;
    ok($t->idle(), 'redirect: no request is left in the counters');
}

# a request to displace one, whose reason is gone, displaces nothing

{
    my @s = held('/small/m', 'q0');
    ok(wait_for(sub { ($t->load())[0] == 1 }), 'displace: one is at the server');

    push @s, map { held("/small/n$_", 'q0') } 1 .. 2;
    ok(waiting(2, 'small'), 'displace: two wait');

    # all seen by another worker, if there are several

    push @s, map { held("/small/h$_", 'q0', 1000, 'X-Class' => 'high') } 1 .. 2;
    ok(waiting(2, 'small') && wait_for(sub { class('small', 1)->{size} == 2 }),
       'displace: two more urgent ones replace them');

    go('q0');
    $t->finish($_) for @s;

    my $shed = class('small', 3)->{shed};

    @s = held('/small/o', 'q1');
    ok(wait_for(sub { ($t->load())[0] == 1 }), 'displace: one is at the server again');
    push @s, map { held("/small/p$_", 'q1') } 1 .. 2;
    ok(waiting(2, 'small'), 'displace: two wait again');

    go('q1');
    is($t->finish($_)->{status}, 200, 'displace: answered') for @s;
    is(class('small', 3)->{shed}, $shed, 'displace: none was displaced');
}

# waiting requests outlast a reload, and new ones come after them

{
    my @s = held('/r/a', 'r0', 1000);
    ok(wait_for(sub { ($t->load())[0] == 1 }), 'reload: one is at the server');

    push @s, held("/r/$_", 'r0', 1000 * $_) for 1 .. 4;
    ok(waiting(4), 'reload: four wait');

    $t->reload();

    is(size(), 4, 'reload: they still wait');

    push @s, held('/r/5', 'r0', 90_000);
    ok(waiting(5), 'reload: and a new one');

    go('r0');
    is($t->finish($_)->{status}, 200, 'reload: answered') for @s;
    is(served('/r/'), 'a 1 2 3 4 5', 'reload: in order');
    ok($t->idle(), 'reload: no request is left in the counters');
}

# requests of a killed worker end, and block no others

{
    my @s = held('/k/a', 'k0', 1000);
    ok(wait_for(sub { ($t->load())[0] == 1 }), 'kill: one is at the server');

    my @lost = map { held("/k/x", 'k0', 1000) } 1 .. 8;
    ok(waiting(8), 'kill: eight wait');

    $t->kill_worker($_) for $t->active_workers();
    close $_ for @s, @lost;

    ok(wait_for(sub { my $n = size(); defined $n && $n == 0 }),
       'kill: no request waits');
    go('k0');

    is($t->post('/k/b', chat('x'))->{status}, 200, 'kill: the next is served');
    ok($t->idle(), 'kill: no request is left in the counters');
}

# the load of a peer

{
    my @s = held('/l/a', 'l0', 20_000);
    ok(wait_for(sub { ($t->load())[0] == 1 }), 'load: one is at the server');

    go('l0');
    is($t->finish($_)->{status}, 200, 'load: answered') for @s;
    ok($t->idle(), 'load: no request is left in the counters');

    my $load = $t->peer('u', $t->{vars}{B0})->{load};

    cmp_ok($load->{prefill_rate}, '>', 0, 'load: the rate is known');
    cmp_ok($load->{utilization}, '>', 0, 'load: utilization above 0');

    my $metrics = $t->get('/kvroute/metrics')->{body};

    my ($value) = $metrics
        =~ /^kvroute_peer_utilization_ratio\{upstream="u",[^}]*\} (\S+)$/m;
    cmp_ok($value // -1, '>', 0, 'load: utilization in Prometheus');
}

# --- Prometheus has the same values

{
    my $text = $t->get('/kvroute/metrics')->{body};
    my %m = $text =~ /^(kvroute_queue_\w+\{.*\}) (\S+)$/mg;
    my $all = $t->status()->{upstreams};
    my %name = map { $_ => $_ } qw(full timeout deadline shed aborted);

    for my $u (sort keys %$all) {
        my $q = $all->{$u}{queue} or next;
        my $l = qq(upstream="$u");
        my $waited = 0;

        is($m{"kvroute_queue_max_requests{$l}"}, $q->{max_size}, "$u: max");

        for my $c (@{$q->{classes}}) {
            my $lc = qq($l,class="$c->{class}");

            $waited += $c->{waited};

            my @got = map { $m{"kvroute_queue_${_}{$lc}"} }
                      qw(requests passed_total waited_total);
            is("@got", "@$c{qw(size passed waited)}", "$lc: admitted");

            @got = map { $m{"kvroute_queue_rejected_total"
                            . "{$lc,reason=\"$name{$_}\"}"} } sort keys %name;
            is("@got", join(' ', map { $c->{$_} } sort keys %name),
               "$lc: not admitted");
        }

        is($m{"kvroute_queue_seconds_count{$l}"}, $waited, "$u: times of waiting");
        is($all->{$u}{queue_time}{count}, $waited, "$u: in JSON too");
        is($m{"kvroute_queue_seconds_bucket{$l,le=\"+Inf\"}"}, $waited,
           "$u: all histogram entries");
    }

    ok($all->{u}{queue_time}{sum} > 0, 'the sum of times');
}

$t->done();
