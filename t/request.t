#!/usr/bin/perl

# Requests of all kinds: subrequests, mirrors, internal redirects, several
# upstreams and zones, named locations, upstreams by variables.

use lib 't/lib';
use Kvroute;

my $t = Kvroute->new();

$t->backend("B$_") for 0 .. 3;
$t->{vars}{$_} = $t->port() for qw(DEAD PORT2);

$t->upstream('a', 'kvroute kv_cache zone=one;', 'B0 B1 max_fails=0');
$t->upstream('b', 'kvroute kv_cache zone=one;', 'B2 B3 max_fails=0');
$t->upstream('c', 'kvroute kv_cache zone=two;', 'B0 B3 max_fails=0');
$t->upstream('dead', 'kvroute kv_cache zone=one;', 'DEAD max_fails=0',
             'server 127.0.0.2:%%DEAD%% max_fails=0;');

$t->conf(<<'EOF');
    kvroute_zone zone=one:2m;
    kvroute_zone zone=two:2m;
    log_format kv '$arg_n $upstream_addr|$kvroute_peer|$kvroute_reason|'
                  '$kvroute_matched_bytes|$kvroute_prompt_bytes|'
                  '$kvroute_policy|$kvroute_model|$kvroute_ttft|'
                  '$kvroute_best_bytes';
    access_log %%DIR%%/access.log kv;

    map $arg_pool $pool { default a; b b; c c; }

    location /kvroute/ { kvroute_status; }
    location / { proxy_pass http://a; }
    location /c/ { proxy_pass http://c; }
    location /pool/ { proxy_pass http://$pool; }

    location /error/ {
        proxy_intercept_errors on;
        error_page 500 502 = @fallback;
        proxy_pass http://a;
    }
    location /dead/ { error_page 502 = @fallback; proxy_pass http://dead; }
    location /other_zone/ {
        error_page 502 = @zone_two;
        proxy_pass http://dead;
    }
    location /two_one/ {
        proxy_intercept_errors on;
        error_page 500 = @zone_one;
        proxy_pass http://c;
    }
    location @zone_one { proxy_set_header X-B0 ""; proxy_pass http://a; }
    location @fallback { proxy_pass http://b; }
    location @zone_two { proxy_pass http://c; }

    location /mirror/ { mirror /copy; proxy_pass http://a; }
    location /copy { internal; proxy_pass http://b; }

    location /auth/ { auth_request /check; proxy_pass http://a; }
    location /check {
        internal;
        proxy_pass_request_body off;
        proxy_set_header Content-Length "";
        proxy_pass http://b;
    }

    location /accel/ { proxy_pass http://127.0.0.1:%%PORT2%%; }
    location /accelerated/ { internal; proxy_pass http://b; }

    location /page/ {
        error_page 500 /50x.html$is_args$args;
        proxy_intercept_errors on;
        proxy_pass http://a;
    }
    location = /50x.html { internal; return 500 "ours\n"; }

    server {
        listen 127.0.0.1:%%PORT2%%;
        location / {
            add_header X-Accel-Redirect /accelerated/$is_args$args;
            return 200;
        }
    }
EOF

$t->run();

my $n = 0;

sub logged {
    my ($id) = @_;
    my @f;

    wait_for(sub {
        @f = $t->access_log()
             =~ /^\Q$id\E (.*?)\|(.*?)\|(.*?)\|(.*?)\|(.*?)\|(.*?)\|(.*?)\|(.*?)\|(.*)$/m;
    });

    return { addr => $f[0], peer => $f[1], reason => $f[2], matched => $f[3],
             prompt => $f[4], policy => $f[5], model => $f[6], ttft => $f[7],
             best => $f[8] };
}

sub ask {
    my ($uri, $body, %h) = @_;
    my $id = 'q' . ++$n;
    my $r = $t->post($uri . ($uri =~ /\?/ ? '&' : '?') . "n=$id", $body,
                     headers => \%h);
    my $l = logged($id);

    $l->{status} = $r->{status};
    $l->{home} = $r->{headers}{'x-backend'} // '';
    $l->{body} = $r->{body};

    return $l;
}

sub both { my ($do) = @_; return map { ("X-B$_" => $do) } 0 .. 3 }

# all variables

{
    my $body = chat(text(5000, 1), model => 'llama');
    my $first = ask('/', $body);
    my $l = ask('/', $body);

    is($l->{policy}, 'kv_cache', 'policy');
    is($l->{reason}, 'affinity', 'reason');
    is($l->{peer}, "127.0.0.1:$t->{vars}{$l->{home}}", 'peer');
    is($l->{model}, 'llama', 'model');
    is($l->{prompt}, 5006, 'prompt bytes: the text, its role and two marks');
    is($l->{matched}, 4864, 'matched bytes: whole blocks');
    is($l->{best}, 4864, 'best bytes');
    like($l->{ttft}, qr/^\d+\.\d{3}$/, 'ttft');

    my $r = $t->get('/kvroute/?n=none');
    my $none = logged('none');
    is(join('', @{$none}{qw(peer reason matched policy model ttft)}), '------',
       'a request without an upstream has no values');
}

# an upstream by a variable

for my $pool (qw(a b c)) {
    my $body = chat(text(5000, 3));
    ask("/pool/?pool=$pool", $body);
    my $l = ask("/pool/?pool=$pool", $body);
    cmp_ok($l->{matched}, '>', 4000, "pool $pool by a variable");
}

# error_page to another upstream: the last decision is logged, all count

for my $case ([ '/error/', 'status 500' ], [ '/error/', 'close' ],
              [ '/dead/', '' ])
{
    my ($uri, $do) = @$case;
    my $body = chat(text(5000, 4 + ++$n));
    my $l = ask($uri, $body, 'X-B0' => $do, 'X-B1' => $do);

    is($l->{status}, 200, "$uri $do: served by a fallback");
    like($l->{home}, qr/B[23]/, "$uri $do: by the other upstream");
    is($l->{peer}, "127.0.0.1:$t->{vars}{$l->{home}}", "$uri $do: logged");

    my $again = ask($uri, $body, 'X-B0' => $do, 'X-B1' => $do);
    is($again->{home}, $l->{home}, "$uri $do: it has learned the prompt");
    cmp_ok($again->{matched}, '>', 4000, "$uri $do: and matches");

    my $direct = ask('/', $body);
    is($direct->{matched}, 0, "$uri $do: the first one has not learned it")
        unless $uri eq '/dead/';

    ok($t->idle(), "$uri $do: no request is left in the counters");
}

{
    my $body = chat(text(5000, 40));
    ask('/c/', $body);
    my $l = ask('/other_zone/', $body);
    is($l->{matched}, 4864, 'a redirect to an upstream in another zone');
}

# the same with a body in a file

{
    my $body = chat(text(50_000, 41));
    my $l = ask('/error/', $body, 'X-B0' => 'status 500',
                'X-B1' => 'status 500');
    like($l->{home}, qr/B[23]/, 'large body: served by a fallback');
    my $again = ask('/error/', $body, 'X-B0' => 'status 500',
                    'X-B1' => 'status 500');
    cmp_ok($again->{matched}, '>', 45_000, 'large body: learned');
    is(ask('/', $body)->{matched}, 0, 'large body: the error was not learned');
}

# from one zone to another, with other blocks and another secret

{
    my $body = chat(text(50_000, 43));
    my @fail = ('X-B0' => 'status 500', 'X-B3' => 'status 500');

    like(ask('/two_one/', $body, @fail)->{home}, qr/B[01]/,
         'large body to another zone: served');
    cmp_ok(ask('/two_one/', $body, @fail)->{matched}, '>', 45_000,
           'large body to another zone: learned');
}

# nginx's own error page is not a first event

{
    my $body = chat(text(5000, 42));
    my $l = ask('/page/', $body, both('status 500'));
    is($l->{status}, 500, 'an error page');
    is($l->{ttft}, '-', 'has no first token');
    is(ask('/', $body)->{matched}, 0, 'and is not learned');
}

# X-Accel-Redirect

{
    my $body = chat(text(5000, 50));
    my $l = ask('/accel/', $body);
    is($l->{status}, 200, 'X-Accel-Redirect');
    like($l->{home}, qr/B[23]/, 'to a kvroute upstream');
}

# mirror: the copy is a request of its own

{
    my $body = chat(text(5000, 60));
    my $before = $t->backend_log('B2') + $t->backend_log('B3');
    ask('/mirror/', $body);
    my $l = ask('/mirror/', $body);
    like($l->{home}, qr/B[01]/, 'mirror: the original');
    cmp_ok($l->{matched}, '>', 4000, 'mirror: matched');
    ok(wait_for(sub {
        $t->backend_log('B2') + $t->backend_log('B3') == $before + 2;
    }), 'mirror: both copies arrive');
    ok($t->idle(), 'mirror: no request is left in the counters');

    # a mirror that hangs when the original has long ended

    my $large = chat(text(100_000, 61));
    my $s = $t->start('POST /mirror/', $large, headers => {
        'X-B2' => 'wait mirror', 'X-B3' => 'wait mirror' });
    ok($t->read_until($s, qr/B[01] /), 'mirror hangs: original answered');
    is(($t->load())[0], 1, 'mirror hangs: counted');
    $t->step('mirror');
    ok($t->idle(), 'mirror hangs: done');
}

# auth_request: its subrequest has no body

{
    my $body = chat(text(5000, 70));
    ask('/auth/', $body);
    my $l = ask('/auth/', $body);
    is($l->{status}, 200, 'auth_request');
    like($l->{home}, qr/B[01]/, 'the request itself is routed');
    cmp_ok($l->{matched}, '>', 4000, 'and matches');
    ok($t->idle(), 'auth_request: no request is left in the counters');

    $l = ask('/auth/', $body, 'X-B2' => 'status 403', 'X-B3' => 'status 403');
    is($l->{status}, 403, 'auth_request: denied');
}

# a client that leaves during a fallback

{
    my $body = chat(text(5000, 80));
    my $s = $t->start('POST /error/', $body, headers => {
        'X-B0' => 'status 500', 'X-B1' => 'status 500',
        'X-B2' => 'stall', 'X-B3' => 'stall' });
    wait_for(sub { $t->peer('b', $t->{vars}{B2})->{active}
                   + $t->peer('b', $t->{vars}{B3})->{active} == 1 });
    is(($t->load())[0], 1, 'one attempt at a time is counted');
    close $s;
    ok($t->idle(), 'gone');
}

# pipelined and kept requests on one connection

{
    my $s = $t->connect();
    my $ok = 0;

    for my $i (1 .. 5) {
        $t->start("POST /?n=p$i", chat(text(3000, 90)), socket => $s);
        $ok += ($t->finish($s)->{status} == 200);
    }

    is($ok, 5, 'five requests on a connection');
    is(logged('p5')->{reason}, 'affinity', 'with affinity');
}

ok($t->idle(), 'the counters are back at zero');
is(($t->load())[2], 0, 'nginx counts none either');

$t->done();
