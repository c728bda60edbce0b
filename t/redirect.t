#!/usr/bin/perl

# Internal redirects: settings of the new location (salt, limit of the body,
# path, learning of replies) apply, and nothing remains of the old location's
# state.

use lib 't/lib';
use Kvroute;

my $t = Kvroute->new();

$t->backend("B$_") for 0 .. 1;
$t->{vars}{$_} = $t->port() for qw(DEAD SET);

# an address where connect() fails at once

my $dead = IO::Socket::UNIX->new(Local => "$t->{dir}/dead.sock",
                                 Type => IO::Socket::SOCK_STREAM());

# engines that redirect by X-Accel-Redirect, and engines that answer a chat

for my $name (qw(A0 A1)) {
    $t->serve($name, sub {
        my ($c) = @_;
        my $data = '';

        while (defined(my $head = Kvroute::Servers::backend_read($c, \$data)))
        {
            my ($n) = $head =~ /^\S+ \S*[?&]n=(\w+)/;
            syswrite($c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n"
                         . "X-Accel-Redirect: /inner?n=$n\r\n\r\n");
        }
    });
}

my $reply = text(3000, 999);

for my $name (qw(C0 C1)) {
    $t->serve($name, sub {
        my ($c) = @_;
        my $data = '';

        Kvroute::Servers::backend_read($c, \$data);

        my @words = map {
            'data: ' . JSON::PP::encode_json(
                { choices => [ { index => 0, delta => $_ } ] }) . "\n\n"
        } ({ role => 'assistant', content => $reply });

        syswrite($c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                     . "Connection: close\r\n\r\n"
                     . join('', @words, "data: [DONE]\n\n"));
    });
}

$t->upstream('u', 'B0 B1 max_fails=0');
$t->upstream('queued', 'kvroute_queue max=10;',
             'B0 B1 max_fails=0 max_conns=8');
$t->upstream('dying', 'kvroute_queue max=10;',
             'server unix:%%DIR%%/dead.sock max_fails=0;',
             'B0 max_fails=0 max_conns=8 backup');
$t->upstream('one', 'B0 max_fails=0');
$t->upstream('accel', 'A0 A1 max_fails=0');
$t->upstream('replies', 'C0 C1 max_fails=0');
$t->upstream('dead', 'DEAD max_fails=0',
             'server 127.0.0.2:%%DEAD%% max_fails=0;');

$t->conf(<<'EOF');
    kvroute_zone zone=z:8m;
    log_format kv '$arg_n $kvroute_matched_bytes|$kvroute_prompt_bytes|'
                  '$kvroute_model|$kvroute_session|$kvroute_policy|'
                  '$kvroute_peer|$kvroute_queue_status';
    access_log %%DIR%%/access.log kv;
    client_body_buffer_size 64k;

    location / { proxy_pass http://u; }
    location /tenant/ { kvroute_salt $http_x_key; proxy_pass http://u; }

    location /named/ { error_page 502 = @tenants; proxy_pass http://dead; }
    location /inspected/ {
        error_page 502 = @tenants_inspected;
        proxy_pass http://dead;
    }
    location /twice/ {
        recursive_error_pages on;
        error_page 502 = @again;
        proxy_pass http://dead;
    }
    location @again {
        kvroute_salt again;
        error_page 502 = @tenants;
        proxy_pass http://dead;
    }
    location @tenants { kvroute_salt $http_x_key; proxy_pass http://u; }
    location @tenants_inspected {
        kvroute_salt $http_x_key;
        proxy_pass http://u;
    }
    location /page/ {
        error_page 502 = /inner$is_args$args;
        proxy_pass http://dead;
    }
    location /accel/ { proxy_pass http://accel; }
    location /inner {
        internal;
        kvroute_salt $http_x_key;
        proxy_pass http://u;
    }
    location /post/ { post_action @tenants; proxy_pass http://one; }
    location /queued/ { error_page 502 = @queued; proxy_pass http://dead; }
    location @queued {
        kvroute_salt $http_x_key;
        proxy_pass http://queued;
    }

    # the same upstream with a queue twice

    location /queue_twice/ {
        proxy_intercept_errors on;
        error_page 500 = @queued_ok;
        proxy_pass http://queued;
    }
    location /dying/ {
        proxy_next_upstream off;
        error_page 502 = @backup;
        proxy_pass http://dying;
    }
    location @backup { kvroute_salt $http_x_key; proxy_pass http://dying; }
    location @queued_ok {
        kvroute_salt $http_x_key;
        proxy_set_header X-B0 "";
        proxy_set_header X-B1 "";
        proxy_pass http://queued;
    }

    # a prompt is learned without a salt, where there is no choice

    location /one/ { error_page 502 = @one; proxy_pass http://dead; }
    location @one { kvroute_salt $http_x_key; proxy_pass http://one; }

    # and from a location with a salt to one without

    location /salted/ {
        kvroute_salt $http_x_key;
        error_page 502 = @plain;
        proxy_pass http://dead;
    }
    location @plain { proxy_pass http://u; }

    location /mirror/ { mirror /copy; proxy_pass http://one; }
    location /copy {
        internal;
        kvroute_salt $http_x_key;
        proxy_pass http://u;
    }

    location /short/ {
        client_max_body_size 0;
        error_page 502 = @long;
        proxy_pass http://dead;
    }
    location @long { client_max_body_size 32m; proxy_pass http://u; }

    location /long/ {
        client_max_body_size 32m;
        error_page 502 = @short;
        proxy_pass http://dead;
    }
    location @short { client_max_body_size 0; proxy_pass http://u; }

    location /v2/models/a/ {
        error_page 502 = /v2/models/b/infer$is_args$args;
        proxy_pass http://dead;
    }
    location /v2/models/b/ { internal; proxy_pass http://u; }

    location /sticky/ {
        kvroute_policy sticky key=$http_x_session_id;
        error_page 502 = @plain;
        proxy_pass http://dead;
    }

    # the same expression, but another value

    server {
        listen 127.0.0.1:%%SET%%;
        kvroute_salt $who;

        location / {
            set $who "";
            error_page 502 = @set;
            proxy_pass http://dead;
        }
        location @set { set $who $http_x_key; proxy_pass http://u; }
    }
EOF

$t->run();

my $n = 0;
my $seed = 0;

sub ask {
    my ($uri, $body, %arg) = @_;
    my $id = 'q' . ++$n;
    my %headers = %{$arg{headers} || {}};

    $headers{'X-Key'} = $arg{key} if defined $arg{key};

    my $r = $t->post("$uri?n=$id", $body, headers => \%headers,
                     port => $arg{port});

    my @f;
    wait_for(sub { @f = $t->access_log() =~ /^$id (.*)$/m });

    my %l;
    @l{qw(matched prompt model session policy peer queue)}
        = split /\|/, $f[0] // '';
    $l{status} = $r->{status};

    return \%l;
}

# a prompt with alice's salt matches only with this salt

my $set = $t->{vars}{SET};

for my $case ([ '/tenant/' ], [ '/named/' ], [ '/inspected/' ], [ '/twice/' ],
              [ '/page/' ], [ '/accel/' ], [ '/queued/' ], [ '/', $set ],
              [ '/queue_twice/', undef,
                { 'X-B0' => 'status 500', 'X-B1' => 'status 500' } ])
{
    my ($uri, $port, $headers) = @$case;
    my $name = $uri . ($port ? ' of the other server' : '');
    my $body = chat(text(20_000, ++$seed));
    my %arg = (port => $port, headers => $headers);

    is(ask($uri, $body, %arg, key => 'alice')->{status}, 200, "$name served");
    cmp_ok(ask($uri, $body, %arg, key => 'alice')->{matched}, '>', 19_000,
           "$name: alice's prompt matches for alice");
    is(ask($uri, $body, %arg, key => 'bob')->{matched}, 0,
       "$name: nothing matches for bob");
    is(ask('/', $body)->{matched}, 0, "$name: nothing matches without a salt");
    cmp_ok(ask('/tenant/', $body, key => 'alice')->{matched}, '>', 19_000,
           "$name: the salt is the last location's");
    ok($t->idle(), "$name: no request is left in the counters");
}

# The queue's look-up for the old location is not used either, if the redirect
# comes in the same turn of the event loop.

{
    my $body;

    do {
        $body = chat(text(20_000, ++$seed));
    } until ask('/', $body)->{peer} =~ /:$t->{vars}{B0}$/;

    is(ask('/dying/', $body, key => 'bob')->{matched}, 0,
       'at once: nothing matches for bob');
}

# a post_action has a location of its own

{
    my $body = chat(text(20_000, ++$seed));

    is(ask('/post/', $body, key => 'alice')->{status}, 200, 'post_action');
    is(ask('/tenant/', $body, key => 'bob')->{matched}, 0,
       'post_action: nothing matches for bob');
    ok($t->idle(), 'post_action: no request is left in the counters');
}

# without a choice nothing is learned of a body that another location read

{
    my $body = chat(text(20_000, ++$seed));

    ask('/one/', $body, key => 'alice');
    is(ask('/', $body)->{matched}, 0, 'a single server: nothing is learned');
}

# from a salt to none

{
    my $body = chat(text(20_000, ++$seed));

    ask('/salted/', $body, key => 'alice');
    is(ask('/tenant/', $body, key => 'alice')->{matched}, 0,
       'to none: not with the salt of the first location');
    cmp_ok(ask('/', $body)->{matched}, '>', 19_000, 'to none: without a salt');
}

# subrequests have a location of their own

{
    my $body = chat(text(20_000, ++$seed));

    ask('/mirror/', $body, key => 'alice');
    ok($t->idle(), 'mirror: done');
    is(ask('/tenant/', $body, key => 'bob')->{matched}, 0,
       'mirror: nothing matches for bob');
    is(ask('/', $body)->{matched}, 0, 'mirror: nothing matches without a salt');
}

# the limit of the body

{
    my $body = chat(text(17_000_000, ++$seed));

    like(ask('/short/', $body)->{prompt}, qr/^17\d{6}$/,
         'size: of the last location: read');

    my $l = ask('/long/', $body);
    is("$l->{prompt} $l->{model}", '- -', 'size: of the last location: not read');
}

# the path

{
    my $l = ask('/v2/models/a/infer',
                '{"text_input":"' . text(20_000, ++$seed) . '"}');
    is($l->{model}, 'b', 'path: of the last location');
}

# the session of a policy that is not used any more

{
    my $l = ask('/sticky/', chat(text(2000, ++$seed)),
                headers => { 'X-Session-Id' => 's1' });
    is($l->{policy}, 'kv_cache', 'policy: of the last location');
    is($l->{session}, '-', 'session: none');
}

ok($t->idle(), 'the counters are back at zero');

$t->done();
