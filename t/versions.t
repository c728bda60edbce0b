#!/usr/bin/perl

# What differs between versions of nginx: connections kept by default and in
# any order of directives (1.29.7), sessions by nginx's own "sticky" and
# servers that drain (1.29.6), locations by values of the body and the control
# API (1.31.5).

use lib 't/lib';
use Kvroute;

my $t = Kvroute->new(workers => 1);

$t->backend("B$_") for 0 .. 2;

my $sticky = $t->version() ge '001029006';
my $any_order = $t->version() ge '001029007';

$t->{vars}{BEFORE} = $any_order ? 'keepalive 4;' : '';
$t->{vars}{AFTER} = $any_order ? '' : 'keepalive 4;';

my ($upstreams, $locations) = ('', '');

if ($sticky) {
    $upstreams = <<'EOC';
    upstream sticky {
        zone sticky 64k;
        kvroute kv_cache zone=z;
        server 127.0.0.1:%%B0%% route=a;
        server 127.0.0.1:%%B1%% route=b;
        server 127.0.0.1:%%B2%% route=c;
        sticky cookie srv;
    }
    upstream drain {
        zone drain 64k;
        kvroute kv_cache zone=z;
        server 127.0.0.1:%%B0%% route=a;
        server 127.0.0.1:%%B1%% route=b drain;
        server 127.0.0.1:%%B2%% route=c drain;
        sticky cookie srv;
    }
EOC

    $locations = join "\n", map { "location /$_/ { proxy_pass http://$_; }" }
                                qw(sticky drain);
}

$t->upstream('kept', '%%BEFORE%%', 'kvroute kv_cache zone=z;', 'B0',
             '%%AFTER%%');

$t->conf(<<"EOC")->run();
    add_header X-Reason \$kvroute_reason;

    $upstreams

    proxy_http_version 1.1;
    proxy_set_header Connection "";
    location /kept/ { proxy_pass http://kept; }
    $locations
EOC

my $body = chat(text(5_000, 1));

# the last number of a backend's answer counts requests by one connection

like($t->post('/kept/', $body)->{body}, qr/ $_$/, "the connection is reused: $_")
    for 1 .. 3;
like($t->get('/kept/')->{body}, qr/ 4$/, 'the connection is reused without a body');

unlike($t->log(), qr/load balancing method redefined/, 'no warnings');

SKIP: {
    skip 'nginx has "sticky" since 1.29.6', 1 unless $sticky;

    my $cookie = sub {
        my ($r) = @_;
        my ($c) = ($r->{headers}{'set-cookie'} // '') =~ /^(srv=[^;]+)/;
        return $c;
    };

    my ($name) = $t->post('/sticky/', $body)->{body} =~ /^(\S+)/;

    # the session wins over the cached prefix

    my %by;

    for my $route (qw(a b c)) {
        my $r = $t->post('/sticky/', $body,
                         headers => { Cookie => "srv=$route" });
        $by{$route} = $r->{headers}{'x-backend'};
        is($r->{headers}{'x-reason'}, 'pinned', 'the receipt: pinned');
    }

    is(join(' ', @by{qw(a b c)}), 'B0 B1 B2', 'sessions stay at their servers');

    ok($cookie->($t->post('/sticky/', $body)), 'a new session has a cookie');
    ok($cookie->($t->get('/sticky/')), 'so has one without a body');
    unlike($t->log(), qr/does not support sticky/, 'no message about "sticky"');

    # servers that drain serve only their sessions

    my %got;
    $got{$t->post('/drain/', chat(text(5_000, $_)))->{headers}{'x-backend'}}++
        for 1 .. 6;
    is(join(' ', keys %got), 'B0', 'servers that drain get no new sessions');

    is($t->post('/drain/', $body, headers => { Cookie => 'srv=b' })
         ->{headers}{'x-backend'}, 'B1', 'sessions stay at a server that drains');

    is($t->peer('drain', $t->{vars}{B1})->{state}, 'draining', 'the state: draining');
}

$t->stop('TERM');


# --- locations by the body

sub by_body {
    $t = Kvroute->new(workers => 1);

    return 'nginx has client_body_early_read since 1.31.5'
        if $t->version() lt '001031005';
    return 'this nginx has no http_json_module'
        unless $t->{version} =~ /http_json_module/;

    $t->backend("B$_") for 0 .. 3;
    $t->upstream('small', 'kvroute kv_cache zone=z;', 'B0');
    $t->upstream('large', 'kvroute kv_cache zone=z;', 'B1 B2');

    my $conf = <<'EOC';
http {
%%TEMP%%
    kvroute_zone zone=z:2m;
%%UPSTREAMS%%

    access_log off;

    map $request_method $is_post { POST 1; }
    map $kvroute_model $large { large 1; }
    map $kvroute_prompt_bytes $long { "~^[3-9][0-9]{6}" 1; }
    map $json $json_large { json 1; }
    json_set $json $request_body model;

    server {
        listen 127.0.0.1:%%PORT%%;
        client_max_body_size 64m;
        client_body_buffer_size 1m;
        client_body_early_read $is_post;

        set $seen $kvroute_model;
        add_header X-Seen $seen;
        add_header X-Matched $kvroute_matched_bytes;

        location / { proxy_pass http://small; }
        location $large { kvroute_salt $http_x_tenant; proxy_pass http://large; }
        location $long { proxy_pass http://127.0.0.1:%%B3%%; }
        location $json_large { return 200 "json\n"; }
        location /kvroute/ { kvroute_status; }
    }
}
EOC

    my $control = $t->port();

    push @{$t->{bin}}, '-l', "127.0.0.1:$control" if $t->{version} =~ /control-api/;

    $t->conf($conf)->run();

    my $send = sub {
        my ($model, $n, $seed, %headers) = @_;

        my $r = $t->post('/v1/chat/completions',
                         qq({"model":"$model","messages":[{"role":"user","content":")
                         . text($n, $seed) . '"}]}', headers => \%headers);

        return (($r->{body} =~ /^(\w+)/)[0] . " $r->{headers}{'x-seen'}",
                $r->{headers}{'x-matched'});
    };

    is(($send->('a', 5_000, 1))[0], 'B0 a', 'other models: the location by prefix');
    like(($send->('large', 5_000, 2))[0], qr/^B[12] large/, 'the location for a model');
    like(($send->('large', 2_000_000, 3))[0], qr/^B[12] large/,
         'the location for a model, the body is in a file');
    is(($send->('a', 3_500_000, 4))[0], 'B3 a', 'the location for long prompts');

    is(($send->('json', 5_000, 5))[0], 'json json', "nginx's own reader of JSON");
    is(($send->('json', 2_000_000, 5))[0], 'B0 json', 'reads no body that is in a file');

    # the location's salt applies, not the server's

    my $matched = sub { ($send->('large', 5_000, 6, 'X-Tenant' => $_[0]))[1] };

    is($matched->('t1'), 0, 'a new prompt');
    cmp_ok($matched->('t1'), '>', 4_000, 'matched for its tenant');
    is($matched->('t2'), 0, 'not matched for another tenant');

    return 'this nginx has no control API' unless $t->{version} =~ /control-api/;

    my $patch = sub {
        $t->conf($_[0]);
        return `curl -si -X PATCH 127.0.0.1:$control/1/control/config`;
    };

    my @old = $t->workers();

    like($patch->($conf), qr{^HTTP/1.1 200}, 'the control API reloads');
    ok(wait_for(sub { my %now = map { $_ => 1 } $t->workers();
                      !grep { $now{$_} } @old }), 'the control API starts new workers');
    cmp_ok($matched->('t1'), '>', 4_000, 'the zone survives it');

    my $wrong = $patch->($conf =~ s/(?=location)/kvroute_api maybe; /r);

    like($wrong, qr{^HTTP/1.1 422}, 'the control API refuses');
    like($wrong, qr/kvroute_api/, 'the control API names the error');
    like(($send->('large', 5_000, 2))[0], qr/^B[12] large/, 'the old configuration serves');
    $t->expect_log(qr/\[emerg\]/);

    return;
}

SKIP: {
    my $why = by_body();
    skip $why, 1 if $why;
}

$t->done();
