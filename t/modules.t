#!/usr/bin/perl

# The router alone and with extensions: each can be omitted, and be added or
# removed by a reload; one of another build is rejected.

use lib 't/lib';
use Kvroute;

use MIME::Base64;

my $t = Kvroute->new();
my ($router, @extensions) = $t->modules();

plan(skip_all => 'no extension is built') unless @extensions;

$t->backend("B$_") for 0 .. 1;

Kvroute::write_file("$t->{dir}/key", 
                    encode_base64(join('', map { chr int rand 256 } 1 .. 192), ''));
chmod 0600, "$t->{dir}/key";

sub conf {
    my ($more) = @_;
    my $upstream = $more =~ s/^upstream: // ? $more : '';

    $more = '' if $upstream;

    return <<"EOF2";
    %%LOG%%
    kvroute_zone zone=z:4m key_file=$t->{dir}/key;
    $more

    upstream llm {
        zone llm 64k;
        kvroute kv_cache zone=z;
        $upstream
        server 127.0.0.1:%%B0%%;
        server 127.0.0.1:%%B1%%;
    }

    location / { proxy_pass http://llm; }
EOF2
}

sub load {
    my ($names, $more) = @_;

    local $ENV{KVROUTE_MODULES} = $names;
    return $t->conf(conf($more));
}

# load_module lines in this order, instead of the usual ones

sub order {
    my (@modules) = @_;

    my $file = "$t->{dir}/nginx.conf";
    my $text = Kvroute::slurp($file) =~ s/^\s*load_module .*\n//mgr;

    Kvroute::write_file($file, join('', map { "load_module $_;\n" } @modules) . $text);
}


my %directive = (share => 'kvroute_share zone=z server=redis://127.0.0.1:1;',
                 events => 'upstream: kvroute_events port=1;',
                 prefill => 'kvroute_prefill off;',
                 continue => 'kvroute_continue off;',
                 budget => 'kvroute_budget off;');

for my $file (@extensions) {
    my ($name) = $file =~ /ngx_http_kvroute_(\w+)_module\.so$/;
    my $more = $directive{$name} // '';
    my ($ok, $log);

    ($ok, $log) = load($name, $more)->check();
    ok($ok, "$name: alone with the router") or diag($log);

    if ($more) {
        ($ok, $log) = load('router', $more)->check();
        ok(!$ok, "$name: not without its module");
        like($log, qr/unknown directive "kvroute_$name"/,
             "$name: nginx names the directive");
    }

    order($file, $router);
    ($ok, $log) = $t->check();
    ok(!$ok, "$name: not before the router");
    like($log, qr/\Q$file\E.*(?:undefined symbol: \w*kvr|kvr\w*: symbol not found)/,
         "$name: nginx names the module");

    # of another build

    my $other = "$t->{dir}/ngx_http_kvroute_${name}_module.so";
    my $code = Kvroute::slurp($file);
    my ($build) = $code =~ /[\0](\d+\.\d+\.\d+ build \d+)[\0]/;

    is($code =~ s/[\0]\Q$build\E[\0]/"\0" . ($build =~ tr{0-9}{1-90}r) . "\0"/ge, 1,
       "$name: it contains its build");
    Kvroute::write_file($other, $code);

    order($router, $other);
    ($ok, $log) = $t->check();
    ok(!$ok, "$name: not from another build");
    like($log, qr/"ngx_http_kvroute_${name}_module"\ is\ of\ kvroute\ ([\d.]+)\ build
                  .*"ngx_http_kvroute_module"\ is\ of\ kvroute\ \Q$build\E/x,
         "$name: both builds are named");
}

# --- the zone stays, whatever modules come and go

my $n = 0;

load('router', '')->run();


is($t->post('/v1/chat/completions?n=0', chat(text(20000)))->{status}, 200,
   'learned by the router alone');

my $first = $t->status()->{zones}{z}{created};

for (['*', $directive{share}], ['router', ''], ['*', ''], ['router', '']) {
    load(@$_);
    $t->reload();

    $n++;
    $t->post("/v1/chat/completions?n=$n", chat(text(20000)));
    cmp_ok($t->receipt($n)->{matched}, '>', 15000, "known with $_->[0]");
    is($t->status()->{zones}{z}{created}, $first, 'the zone is the same');
    is(defined $t->status()->{zones}{z}{share}, $_->[1] ne '', 'sharing is shown if it is on');
}

$t->expect_log(qr/unknown directive|undefined symbol|symbol not found|load both from one build/);
$t->done();
