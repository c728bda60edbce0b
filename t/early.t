#!/usr/bin/perl

# Headers of the upstream request name the server, and its reservation is always
# released.

use lib 't/lib';
use Kvroute;

my $t = Kvroute->new();

my $dead = IO::Socket::UNIX->new(Local => "$t->{dir}/dead.sock",
                                 Type => IO::Socket::SOCK_STREAM());

# The servers answer with their name and the values of our headers.  X-B0 and
# X-B1 tell them to close the connection, at once or when a file exists; to wait
# for a file; to redirect the request; to fail; or to answer with a document
# that includes another one.

for my $name (qw(B0 B1)) {
    my $dir = $t->{dir};

    $t->serve($name, sub {
        my ($c) = @_;
        my $data = '';

        while (defined(my $head = Kvroute::Servers::backend_read($c, \$data)))
        {
            my ($do, $file) = $head =~ /^X-$name: (\w+) ?(.*?)\r?$/mi;
            my %h = map { lc } $head =~ /^X-Told-(\w+): (.*?)\r?$/mig;

            $do //= '';

            if ($file) {
                Kvroute::write_file("$dir/$file.came", '');
                select(undef, undef, undef, 0.005) while !-e "$dir/$file";
            }

            return if $do eq 'close';

            my $body = join ' ', $name, map { "$_=$h{$_}" } sort keys %h;
            my $to = $do =~ /^accel_(\w+)/ ? "X-Accel-Redirect: "
                     . ($1 eq 'named' ? '@one' : '/one/sent') . "\r\n" : '';

            $body = '<!--# include virtual="/one/included" -->' if $do eq 'ssi';

            syswrite($c, 'HTTP/1.1 ' . ($do eq 'fail' ? 503 : 200) . " X\r\n$to"
                         . 'Content-Length: ' . length($body) . "\r\n\r\n$body");
        }
    });
}

# a subrequest asks, in an earlier phase

$t->version();
$t->{vars}{AUTH} = $t->{version} =~ /http_auth_request_module/
                   ? 'auth_request /check;' : '';

$t->upstream('u', 'B0 B1 max_fails=0');
$t->upstream('turns', 'kvroute round_robin zone=z;',
             'B0 max_fails=0 weight=2', 'B1 max_fails=0');
$t->upstream('sessions', 'kvroute sticky key=$http_x_session zone=z;',
             'B0 B1 max_fails=0');
$t->upstream('queued', 'kvroute_queue max=10 timeout=1h;',
             'B0 B1 max_fails=0 max_conns=1');
$t->upstream('twice', 'B0 max_fails=0 max_conns=1',
             'B0 max_fails=0 max_conns=2');
$t->upstream('falls', 'B0 max_fails=1 fail_timeout=1h', 'B1 max_fails=0');
$t->upstream('dying', 'server unix:%%DIR%%/dead.sock max_fails=0;',
             'B1 max_fails=0 backup');
$t->upstream('spare', 'server unix:%%DIR%%/dead.sock down;',
             'B1 max_fails=0 backup');
$t->upstream('nobody', 'kvroute kv_cache zone=full;',
             'server unix:%%DIR%%/dead.sock down;',
             'B0 max_fails=0 max_conns=1',
             'server unix:%%DIR%%/dead.sock down backup;',
             'B1 max_fails=0 backup');
$t->upstream('one', 'B1 max_fails=0');
$t->upstream('out', 'B1 down');

$t->conf(<<'EOF');
    kvroute_zone zone=z:4m;
    kvroute_zone zone=full:1m max_peers=1;
    log_format e '$uri $status $kvroute_peer $upstream_addr '
                 '$kvroute_reason $kvroute_early';
    access_log %%DIR%%/access.log e;
    proxy_cache_path %%DIR%%/cache keys_zone=c:1m;
    client_body_buffer_size 64k;

    map $http_x_pool $pool { default u; one one; none nothing; }

    proxy_set_header X-Told-Peer $kvroute_peer;
    proxy_set_header X-Told-Matched $kvroute_matched_bytes;
    proxy_set_header X-Told-Reason $kvroute_reason;
    proxy_set_header X-Told-Early $kvroute_early;
    proxy_set_header X-Told-Model $kvroute_model;

    kvroute_pin $http_x_pin;

    location / { proxy_pass http://u; }
    location /late/ { proxy_set_header X-None 1; proxy_pass http://u; }
    location /bypass/ { kvroute_policy off; proxy_pass http://u; }
    location /again/ {
        proxy_next_upstream error timeout non_idempotent;
        proxy_pass http://u;
    }
    location /named/ { proxy_pass http://$pool; }
    location /held/ {
        proxy_cache c;
        proxy_cache_methods POST;
        proxy_cache_key $uri;
        proxy_cache_valid 200 1h;
        proxy_cache_lock on;
        proxy_cache_lock_timeout 60s;
        proxy_cache_lock_age 60s;
        proxy_pass http://falls;
    }
    location /sent/ { proxy_pass http://u; }
    location /failed/ {
        proxy_intercept_errors on;
        error_page 503 = @one;
        proxy_pass http://u;
    }
    location /included/ { ssi on; ssi_types *; proxy_pass http://u; }
    location /stale/ {
        proxy_cache c;
        proxy_cache_methods POST;
        proxy_cache_key $uri;
        proxy_cache_valid 200 1s;
        proxy_cache_use_stale updating;
        proxy_cache_background_update on;
        add_header X-Cache $upstream_cache_status;
        proxy_pass http://one;
    }
    location /mirrored/ { mirror /mirror; proxy_pass http://u; }
    location /mirror { internal; proxy_pass http://one; }
    location /refused/ { error_page 502 = @late; proxy_pass http://out; }
    location /page/ {
        recursive_error_pages on;
        error_page 502 = @out;
        proxy_pass http://out;
    }
    location @out { error_page 502 = @one; proxy_pass http://out; }
    location @one { proxy_pass http://one; }
    location @late { proxy_pass http://u; }
    location /checked/ { %%AUTH%% proxy_pass http://u; }
    location /check {
        internal;
        proxy_method GET;
        proxy_pass_request_body off;
        proxy_set_header Content-Length "";
        proxy_set_header X-Told-Peer $kvroute_peer;
        proxy_pass http://one;
    }
    set $nowhere nothing;
    location /nowhere/ {
        kvroute_request upstream=u;
        proxy_pass http://$nowhere;
        location /nowhere/one/ {
            error_page 502 = @one;
            proxy_pass http://$nowhere;
        }
        location /nowhere/late/ {
            error_page 502 = @late;
            proxy_pass http://$nowhere;
        }
        location /nowhere/queued/ {
            error_page 502 = @queued;
            proxy_pass http://$nowhere;
        }
    }
    location @queued { proxy_pass http://queued; }
    location /post/ { post_action /posted; proxy_pass http://u; }
    location /posted { internal; proxy_pass http://one; }
    location /kvroute { kvroute_status; }
EOF

$t->run();

my $n = 0;

sub ask {
    my ($uri, %arg) = @_;

    return $t->post($uri, delete $arg{body} // chat(text(2000, ++$n)), %arg);
}

# what a server received in the headers; name is its own

sub told {
    my ($r) = @_;
    my ($name, @rest) = split ' ', $r->{body} // '';

    return { name => $name // '', map { split /=/, $_, 2 } @rest };
}

# requests at servers, and reserved places

sub counted { return ($t->load())[0] }

# a line of the log, which is written shortly after the answer

sub logged {
    my ($re) = @_;
    return wait_for(sub { $t->access_log() =~ $re });
}

my ($b0, $b1) = map { "127.0.0.1:$t->{vars}{$_}" } qw(B0 B1);
my %address = (B0 => $b0, B1 => $b1);


# --- headers name the server

my ($wrong, $late) = (0, 0);

for (1 .. 20) {
    my $h = told(ask('/v1/chat/completions',
                     body => chat(text(8000, ++$n))));

    $wrong++ if ($h->{peer} // '') ne ($address{$h->{name}} // 'none')
                || ($h->{early} // '') ne 'kept';

    $late++ if defined told(ask('/late/v1/chat/completions'))->{peer};
}

ok(!$wrong, 'headers name the server that gets them');
ok(!$late, 'without a variable in the headers there is no early decision');
ok(logged(qr{^/late/\S+ 200 \S+ \S+ \w+ -$}m), 'the log has none');

my $long = chat(text(8000, 4711));

told(ask('/v1/chat/completions', body => $long));

my $h = told(ask('/v1/chat/completions', body => $long));

cmp_ok($h->{matched} // 0, '>', 7000, 'and its cached bytes of the prompt');
is($h->{model}, 'm', 'and the model');
is($h->{reason}, 'affinity', 'and the reason');

my %turns;
$turns{told(ask('/turns/v1/chat/completions'))->{name}}++ for 1 .. 12;

is_deeply(\%turns, { B0 => 8, B1 => 4 }, 'each turn is used once');

my @same = map {
    told(ask('/sessions/v1/chat/completions',
             headers => { 'X-Session' => 'a' }))
} 1 .. 6;

is(scalar(grep { $_->{name} eq $same[0]{name}
                 && $_->{peer} eq $address{$_->{name}} } @same), 6,
   'a session stays, also in the headers');

is(told(ask('/one/v1/chat/completions'))->{peer}, $b1,
   'a single server is named as well');
is(told(ask('/named/v1/chat/completions',
            headers => { 'X-Pool' => 'one' }))->{peer}, $b1,
   'the upstream can be a variable');

$h = told(ask('/v1/chat/completions', pieces => 700));
is($h->{peer}, $address{$h->{name}}, 'a body in pieces is read completely');

$h = told(ask('/v1/chat/completions', body => chat(text(200000, 5))));
is($h->{peer}, $address{$h->{name}}, 'the body can be in a file');

# nginx's own decisions are not known early

is(told($t->get('/v1/models'))->{peer}, undef, 'no body: no header');
is(told(ask('/bypass/v1/chat/completions'))->{peer}, undef,
   'bypassed: no header');

ok($t->idle(), 'the counters are back at zero');


# --- a queue

my @held;

for my $i (1 .. 2) {
    push @held, $t->start('POST /queued/v1/chat/completions',
                          chat(text(2000, 900 + $i)),
                          headers => { map { $_ => 'wait go' } qw(X-B0 X-B1) });
    ok(wait_for(sub { counted() == $i }), "$i of them at the servers");
}

my $waits = $t->start('POST /queued/v1/chat/completions',
                      chat(text(2000, 950)));

ok(wait_for(sub { ($t->status()->{upstreams}{queued}{queue}{size} || 0) == 1 }),
   'a third one waits');

$t->step('go');

for my $s (@held, $waits) {
    $h = told($t->finish($s));
    is($h->{peer}, $address{$h->{name}}, 'its header names the server');
}

ok($t->idle(), 'no reservation of the queue is left');

# a server that is listed twice has the connections of both

@held = map {
    $t->start('POST /twice/v1/chat/completions', chat(text(2000, ++$n)),
              headers => { 'X-B0' => 'wait both' })
} 1 .. 3;

ok(wait_for(sub { ($t->load())[2] == 3 }), 'listed twice: all are in use');
is(ask('/twice/v1/chat/completions')->{status}, 502, 'listed twice: full');
$t->step('both');
is(told($t->finish($_))->{name}, 'B0', 'listed twice: served') for @held;
ok($t->idle(), 'listed twice: no reservation is left');


# --- retries

$h = told(ask('/dying/v1/chat/completions'));
is($h->{name}, 'B1', 'another server answers');
like($h->{peer}, qr/dead.sock/, 'the headers name the first one');

$h = told(ask('/spare/v1/chat/completions'));
is($h->{peer}, $b1, 'an early decision can be a backup server');
is($h->{early}, 'kept', 'and is kept');
ok(logged(qr{^/spare/\S+ 200 $b1 $b1 \w+ kept$}m), 'and logged');

my @retried = map {
    told(ask('/again/v1/chat/completions',
             headers => { 'X-B0' => 'close', 'X-Pin' => $_ }))
} ($b0, $b1) x 3;

is(scalar(grep { $_->{name} eq 'B1' } @retried), 6, 'all went to B1');
is(scalar(grep { $_->{peer} eq $b0 } @retried), 3,
   'half of them by headers for B0');

my @log;

wait_for(sub {
    @log = grep { m{^/again/} } split /\n/, $t->access_log();
    return @log == 6;
});

is(scalar(grep { m{ 200 $b1 $b0, $b1 retry moved$} } @log), 3,
   'these have the variable and the reason');
is(scalar(grep { m{ 200 $b1 $b1 pinned kept$} } @log), 3, 'no others have them');

is(ask('/out/v1/chat/completions')->{status}, 502, 'no usable server: 502');
ok(logged(qr{^/out/\S+ 502 - out - -$}m), 'no decision');


# --- a request that waits for a cache has no reservation

my $path = '/held/v1/chat/completions';

sub held {
    my ($pin, $do) = @_;
    my ($name) = grep { $address{$_} eq $pin } keys %address;

    return $t->start("POST $path", chat(text(2000, ++$n)),
                     headers => { 'X-Pin' => $pin, "X-$name" => $do || '' });
}

my $first = held($b0, 'wait cached');
ok(wait_for(sub { -e "$t->{dir}/cached.came" }), 'the first is at a server');

my $second = held($b1);

$t->step('cached');
like($t->finish($first)->{body}, qr/^B0/, 'the first one is answered');
like($t->finish($second)->{body}, qr/^B0/, 'the second by the cache');
ok($t->idle(), 'no reservation is left');


# --- a server without a slot is identified by its index in the list

$path = '/nobody/v1/chat/completions';

$first = $t->start("POST $path", chat(text(2000, ++$n)),
                   headers => { 'X-B0' => 'wait nobody' });
ok(wait_for(sub { -e "$t->{dir}/nobody.came" }), 'the only one is full');

$h = told(ask('/nobody/v1/chat/completions'));
is("$h->{name} $h->{peer}", "B1 $b1", 'the backup server is named');

$t->step('nobody');
$h = told($t->finish($first));
is("$h->{name} $h->{peer}", "B0 $b0", 'and the other one');


# --- redirects, subrequests

$h = told(ask('/refused/v1/chat/completions'));
is($h->{peer}, $address{$h->{name}}, 'after a redirect the new location decides');
is(told(ask('/page/v1/chat/completions'))->{peer}, $b1,
   'and the new location decides again');

# a request leaves the location after a place was reserved, because of an
# unknown name

my $left = $t->start('POST /nowhere/one/v1/chat/completions',
                     chat(text(2000, ++$n)),
                     headers => { map { $_ => 'wait left' } qw(X-B0 X-B1) });

ok(wait_for(sub { -e "$t->{dir}/left.came" }), 'a request has left its location');
is(counted(), 1, 'its reservation is released');
$t->step('left');

$h = told($t->finish($left));
is("$h->{name} $h->{peer}", "B1 $b1", 'decided again');
close $left;

# a second request follows the first server's answer, or is part of it: the
# first decision must not be counted while the second server works

for my $case ([ '/sent/', 'accel_uri', 'X-Accel-Redirect' ],
              [ '/sent/', 'accel_named', 'X-Accel-Redirect to a named location' ],
              [ '/failed/', 'fail', 'a response that is an error' ],
              [ '/included/', 'ssi', 'a document that is included' ])
{
    my ($uri, $do, $what) = @$case;
    my $s = $t->start("POST ${uri}v1/chat/completions", chat(text(2000, ++$n)),
                      headers => { 'X-Pin' => $b0, 'X-B0' => $do, 'X-B1' => "wait $do" });

    ok(wait_for(sub { -e "$t->{dir}/$do.came" }),
       "$what: a request is at the second server");
    is_deeply([($t->load())[0, 2]], [1, 1], "$what: and counted only there");
    $t->step($do);

    $h = told($t->finish($s));
    is($h->{name}, 'B1', "$what: the request is answered");
    is($h->{peer}, $b1, "$what: with headers of its own decision");
    close $s;
    ok($t->idle(), "$what: no reservation is left");
}

# the cache answers with a stale entry, and updates it in the background

ask('/stale/v1/completions');

ok(wait_for(sub {
    (ask('/stale/v1/completions', headers => { 'X-B1' => 'wait behind' })->{headers}{'x-cache'}
     // '') eq 'STALE'
}), 'the cache answers with a stale entry');
ok(wait_for(sub { -e "$t->{dir}/behind.came" }), 'and updates it');
ok(wait_for(sub { ($t->load())[0] == 1 && ($t->load())[2] == 1 }),
   'only the update is counted');
$t->step('behind');
ok($t->idle(), 'until it has ended');

$h = told(ask('/nowhere/late/v1/chat/completions'));
is($h->{peer}, $address{$h->{name}}, 'or elsewhere');

$h = told(ask('/nowhere/queued/v1/chat/completions'));
is($h->{peer}, $address{$h->{name}}, 'or by another queue');
ok($t->idle(), 'the earlier reservation is released');

$h = told(ask('/checked/v1/chat/completions'));
is($h->{peer}, $address{$h->{name}}, 'an admitted request has the header');

$h = told(ask('/mirrored/v1/chat/completions'));
is($h->{peer}, $address{$h->{name}}, 'a mirrored request has the header');

$h = told(ask('/post/v1/chat/completions'));
is($h->{peer}, $address{$h->{name}}, 'and one with a post_action');

ok($t->idle(), 'no reservation is left');


# --- a worker that is killed

$path = '/held/v1/completions/3';

$first = held($b1, 'wait three');
ok(wait_for(sub { -e "$t->{dir}/three.came" }), 'a request is at a server');

# in each worker: otherwise one can wait for the lock of a dead worker's cache
# entry

$t->kill_worker($_) for $t->active_workers();
$t->step('three');

ok($t->idle(), 'a killed worker\'s reservation is released');
is(($t->load())[2], 0, 'and nginx counts no connection');
is(ask('/v1/chat/completions')->{status}, 200, 'requests are served');

$t->done();
