#!/usr/bin/perl

# Probes and health checks over TLS and with a key: checks of the certificate,
# messages if they fail, and answers that are not health.

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

# TLS in front of it is of an nginx of its own: one that ends by a reload may leave
# open what it had begun to pass on

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

# accepts, and says nothing

$t->serve('S', sub {
    my ($c) = @_;
    1 while sysread($c, my $data, 4096);
});

my @cases = (
    [ 'good', 'TLS', 'ssl name=engine.test trusted=%%DIR%%/engine.pem header=@%%DIR%%/header' ],
    [ 'loose', 'TLS', 'ssl header="Authorization: Bearer k"' ],
    [ 'plain', 'TLS', '', qr/the status is 400: is this a TLS port/ ],

    # all is well with these two, but for what verification finds

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

    # "header=" holds a space, and so the whole word is quoted

    $params =~ s/header="(.*?)"/"header=$1"/;

    # who never answers is waited for in vain, the others as long as it takes

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
                          && $p->{engine}{probes} > 2 }), "$name: asked");
        is(peer($name)->{health}, 'up', "$name: in health");
        is(peer($name)->{health_checks}{fails}, 0, "$name: always");

        is(peer($name)->{engine}{failed}, 0, "$name: and probed");
        next;
    }

    ok(wait_for(sub { peer($name)->{health} eq 'down' }), "$name: not in health");
    ok(wait_for(sub { peer($name)->{engine}{failed} > 1 }), "$name: nor probed");

    my $p = peer($name)->{engine};
    is($p->{failed}, $p->{probes}, "$name: ever");

    ok(wait_for(sub { $t->log() =~ /\[warn\].*health check of \S+ has never worked: .*$warned/ }),
       "$name: said why");
    ok(wait_for(sub { $t->log() =~ /\[warn\].*probe of \S+ has never worked: .*$warned/ }),
       "$name: of probes, too");
}

cmp_ok(peer('good')->{engine}{capacity_tokens}, '>', 0, 'a capacity is told');
is($t->post('/v1/chat/completions', chat('x'))->{status}, 200, 'it serves');

# a certificate that nginx refuses for a client, whatever its fault

is($t->post('/refused/v1/chat/completions', chat('x'))->{status}, 502,
   'refused: no answer');
is(peer('refused')->{reason}, 'tls', 'refused: by its handshake');
like($t->log(), qr/certificate verify error: \(\d+:self.signed/, 'refused: said why');

my $log = Kvroute::slurp("$dir/tls.log");

like($log, qr/^engine\.test\|engine\.test\|2\|200$/m, 'SNI, Host, two lines');
like($log, qr/^-\|127\.0\.0\.1:$t->{vars}{TLS}\|-\|200$/m, 'no name: neither');
unlike($log, qr/\|200\n.*Bearer/, 'no key in a log');
unlike($t->log(), qr/Bearer/, 'of errors neither');

# once a minute, however often it fails

ok(wait_for(sub { peer('name')->{health_checks}{fails} > 12 }), 'fails again');
my $said = () = $t->log() =~ /health check of \S+ has never worked: the cert/g;
cmp_ok($said, '<=', 1 + (time() - $^T) / 60, 'is said once');

# a reload, and the end, in the middle of handshakes

$t->reload();
ok(wait_for(sub { peer('good')->{health} eq 'up' }), 'up after a reload');

# what is wrong in the configuration

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
    ok(!$ok, "$params: not taken");
    like($out, $re, 'and why');
}

$t->quit();
$front->stop('TERM');
done_testing();
