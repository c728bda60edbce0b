#!/usr/bin/perl

# Probes and health checks over TLS and with a key: verification of the
# certificate, messages if it fails, and wrong answers.

use lib 't/lib';
use Kvroute;

my $t = Kvroute->new();
my $dir = $t->{dir};

plan(skip_all => 'nginx has no ssl module')
    if `@{$t->{bin}} -V 2>&1` !~ /http_ssl_module/;
plan(skip_all => 'no openssl') if system('openssl version >/dev/null 2>&1');

for my $name (qw(engine other)) {
    system("openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=$name"
           . " -addext subjectAltName=DNS:$name.test -keyout $dir/$name.key"
           . " -out $dir/$name.pem 2>/dev/null") == 0 or die 'openssl';
}

Kvroute::write_file("$dir/header", "Authorization: Bearer k\nX-Two: 2\n");
chmod 0600, "$dir/header";

my ($e) = $t->engines(1, '--hardware', 'none', '--model', 'm',
                      '--kv-cache-size', 2048, '--block-size', 16);

# another nginx does TLS in front of it: one that exits during a reload may leave
# open a connection it had begun to proxy

my $front = Kvroute->new();

$t->{vars}{TLS} = $front->{vars}{PORT};

$front->conf(<<"EOF")->run();
http {
%%TEMP%%
    log_format tls '\$ssl_server_name|\$http_host|\$http_x_two|\$status';
    access_log $dir/tls.log tls;

    server {
        listen 127.0.0.1:%%PORT%% ssl;
        ssl_certificate $dir/engine.pem;
        ssl_certificate_key $dir/engine.key;

        location / {
            if (\$http_authorization != "Bearer k") {
                return 401;
            }
            proxy_pass http://127.0.0.1:$e;
        }
    }
}
EOF

# a server that accepts connections and never answers

$t->serve('S', sub {
    my ($c) = @_;
    1 while sysread($c, my $data, 4096);
});

my @cases = (
    [ 'good', 'TLS', 'ssl name=engine.test trusted=%%DIR%%/engine.pem header=@%%DIR%%/header' ],
    [ 'loose', 'TLS', 'ssl header="Authorization: Bearer k"' ],
    [ 'plain', 'TLS', '', qr/the status is 400: is this a TLS port/ ],

    # these two are right except for the verification

    [ 'untrusted', 'TLS', 'ssl name=engine.test trusted=%%DIR%%/other.pem'
                     . ' header=@%%DIR%%/header', qr/self.signed cert/ ],
    [ 'name', 'TLS', 'ssl name=other.test trusted=%%DIR%%/engine.pem'
                     . ' header=@%%DIR%%/header', qr/for another host/ ],

    [ 'key', 'TLS', 'ssl', qr/a key is required/ ],
    [ 'notls', 'E0', 'ssl', qr/TLS handshake failed/ ],
    [ 'silent', 'S', 'ssl', qr/TLS handshake failed/ ]
);

my ($upstreams, $locations) = ('', '');

for my $case (@cases) {
    my ($name, $port, $params) = @$case;

    # "header=" contains a space, so the whole parameter is quoted

    $params =~ s/header="(.*?)"/"header=$1"/;

    # the silent server gets a short timeout, the others a long one

    my $patience = $name eq 'silent' ? '300ms' : '30s';

    $upstreams .= <<"EOF";
    kvroute_zone zone=$name:1m;
    upstream $name {
        zone u_$name 64k;
        kvroute kv_cache zone=$name;
        server 127.0.0.1:%%$port%%;
        kvroute_probe interval=50ms timeout=$patience url=/metrics;
        kvroute_health interval=50ms timeout=$patience fails=2;
        @{[ $params ? "kvroute_engine $params;" : '' ]}
    }
EOF
}

my $conf = <<'EOF' =~ s/UPSTREAMS/$upstreams/r;
UPSTREAMS

    kvroute_zone zone=refused:1m;
    upstream refused {
        zone u_refused 64k;
        kvroute kv_cache zone=refused;
        server 127.0.0.1:%%TLS%%;
    }

    location / {
        proxy_pass https://good;
        proxy_set_header Authorization "Bearer k";
    }

    location /refused/ {
        proxy_pass https://refused/;
        proxy_ssl_name engine.test;
        proxy_ssl_verify on;
        proxy_ssl_trusted_certificate %%DIR%%/other.pem;
    }
EOF

$t->conf($conf);

plan(skip_all => 'the module was built for an nginx without ssl')
    if ($t->check())[1] =~ /needs an nginx with its ssl module/;
$t->run();
$t->expect_log(qr{\[emerg\]});

sub peer {
    my ($name) = @_;

    return $t->status()->{upstreams}{$name}{peers}[0];
}

for my $case (@cases) {
    my ($name, undef, undef, $warned) = @$case;

    if (!$warned) {
        ok(wait_for(sub { my $p = peer($name);
                          $p->{health_checks}{checks} > 2
                          && $p->{engine}{probes} > 2 }), "$name: checked and probed");
        is(peer($name)->{health}, 'up', "$name: up");
        is(peer($name)->{health_checks}{fails}, 0, "$name: no check fails");

        is(peer($name)->{engine}{failed}, 0, "$name: no probe fails");
        next;
    }

    ok(wait_for(sub { peer($name)->{health} eq 'down' }), "$name: down");
    ok(wait_for(sub { peer($name)->{engine}{failed} > 1 }), "$name: probes fail");

    my $p = peer($name)->{engine};
    is($p->{failed}, $p->{probes}, "$name: all probes have failed");

    ok(wait_for(sub { $t->log() =~ /\[warn\].*health check of \S+ has never worked: .*$warned/ }),
       "$name: the log has the cause");
    ok(wait_for(sub { $t->log() =~ /\[warn\].*probe of \S+ has never worked: .*$warned/ }),
       "$name: the log has the cause for probes");
}

cmp_ok(peer('good')->{engine}{capacity_tokens}, '>', 0, 'the capacity is reported');
is($t->post('/v1/chat/completions', chat('x'))->{status}, 200, 'a request is served');

# nginx refuses a certificate for a client

is($t->post('/refused/v1/chat/completions', chat('x'))->{status}, 502,
   'refused: no answer');
is(peer('refused')->{reason}, 'tls', 'refused: the reason is the handshake');
like($t->log(), qr/certificate verify error: \(\d+:self.signed/,
     'refused: the log has the cause');

my $log = Kvroute::slurp("$dir/tls.log");

like($log, qr/^engine\.test\|engine\.test\|2\|200$/m, 'SNI, Host, two lines');
like($log, qr/^-\|127\.0\.0\.1:$t->{vars}{TLS}\|-\|200$/m, 'no name: neither');
unlike($log, qr/\|200\n.*Bearer/, 'no key in a log');
unlike($t->log(), qr/Bearer/, 'no key in the error log');

# a failure is logged once a minute, however often it occurs

ok(wait_for(sub { peer('name')->{health_checks}{fails} > 12 }), 'checks fail again');
my $said = () = $t->log() =~ /health check of \S+ has never worked: the cert/g;
cmp_ok($said, '<=', 1 + (time() - $^T) / 60, 'the failure is logged once a minute');

# a reload, and an exit, in the middle of handshakes

$t->reload();
ok(wait_for(sub { peer('good')->{health} eq 'up' }), 'up after a reload');

# wrong configurations

for my $case ([ 'ssl=on', qr/unknown engine "ssl=on"/ ],
              [ "trusted=$dir/engine.pem name=a", qr/"trusted=" needs "ssl"/ ],
              [ "ssl trusted=$dir/engine.pem", qr/"trusted=" needs "name="/ ],
              [ 'ssl name=a trusted=/none', qr{"trusted=" must be .* "/none"} ],
              [ 'ssl name=', qr/"name=" must be the name of a host/ ],
              [ 'header=x', qr/"header=" must be a line, as in "Auth/ ],
              [ 'header=@/none', qr{header "/none"} ],
              [ "header=\@$dir/engine.pem", qr/is open to all users/ ])
{
    my ($params, $re) = @$case;

    $t->conf($conf =~ s/kvroute_engine [^;]*;/kvroute_engine $params;/r);
    my ($ok, $out) = $t->check();
    ok(!$ok, "$params: refused");
    like($out, $re, 'the message');
}

$t->quit();
$front->stop('TERM');
done_testing();
