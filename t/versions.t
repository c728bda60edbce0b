#!/usr/bin/perl

# What differs between versions of nginx: connections kept by default and in
# any order of directives (1.29.7), sessions by nginx's own "sticky" and
# servers that drain (1.29.6).

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

like($t->post('/kept/', $body)->{body}, qr/ $_$/, "connection kept: $_")
    for 1 .. 3;
like($t->get('/kept/')->{body}, qr/ 4$/, 'and without a body');

unlike($t->log(), qr/load balancing method redefined/, 'no warnings');

SKIP: {
    skip 'nginx has "sticky" since 1.29.6', 1 unless $sticky;

    my $cookie = sub {
        my ($r) = @_;
        my ($c) = ($r->{headers}{'set-cookie'} // '') =~ /^(srv=[^;]+)/;
        return $c;
    };

    my ($name) = $t->post('/sticky/', $body)->{body} =~ /^(\S+)/;

    # the session wins over what is cached

    my %by;

    for my $route (qw(a b c)) {
        my $r = $t->post('/sticky/', $body,
                         headers => { Cookie => "srv=$route" });
        $by{$route} = $r->{headers}{'x-backend'};
        is($r->{headers}{'x-reason'}, 'pinned', 'and the receipt says so');
    }

    is(join(' ', @by{qw(a b c)}), 'B0 B1 B2', 'sessions are kept');

    ok($cookie->($t->post('/sticky/', $body)), 'a new session has a cookie');
    ok($cookie->($t->get('/sticky/')), 'without a body too');
    unlike($t->log(), qr/does not support sticky/, 'no complaints');

    # servers that drain serve their sessions and nobody else

    my %got;
    $got{$t->post('/drain/', chat(text(5_000, $_)))->{headers}{'x-backend'}}++
        for 1 .. 6;
    is(join(' ', keys %got), 'B0', 'nothing new for those that drain');

    is($t->post('/drain/', $body, headers => { Cookie => 'srv=b' })
         ->{headers}{'x-backend'}, 'B1', 'sessions go on');

    is($t->peer('drain', $t->{vars}{B1})->{state}, 'draining', 'state');
}

$t->done();
