#!/usr/bin/perl

# The examples: nginx reads each configuration, those of Kubernetes as well, and
# requests go through those that can be served here.  YAML, alert rules and the
# dashboard are checked by what is there to check them.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/lib";
use JSON::PP;
use Kvroute;

my $root = "$FindBin::Bin/..";
my $dir = "$root/examples";

my $t = Kvroute->new();

$t->backend("B$_") for 0 .. 5;

# an example as it stands, but for what belongs to a machine

sub example {
    my ($conf) = @_;

    $conf =~ s/load_module \S+;//;
    $conf =~ s/worker_processes \w+;//;
    $conf =~ s/events \{[^}]*\}//;
    $conf =~ s/^http \{/http {\n%%TEMP%%\naccess_log off;/m;
    $conf =~ s!/var/log/nginx/!$t->{dir}/!g;
    $conf =~ s/listen (?:8080|80|127\.0\.0\.1:8080);/listen 127.0.0.1:%%PORT%%;/;

    return $conf;
}

# addresses become backends, in order

sub local_servers {
    my ($conf) = @_;
    my $n = 0;

    $conf =~ s/server\ (?:10\.\S+?:8000|127\.0\.0\.1:900\d)
              /"server 127.0.0.1:" . $t->{vars}{'B' . $n++}/gex;

    return $conf;
}

my $version = $t->version();

# --- nginx's own

for my $file (sort glob "$dir/nginx/*.conf") {
    my ($name) = $file =~ m{([^/]+)$};
    my $conf = Kvroute::slurp($file);

    SKIP: {
        skip "$name: names are resolved at run time since nginx 1.27.3", 1
            if $conf =~ /\bresolve\b/ && $version lt '001027003';

        my ($ok, $out) = $t->conf(example($conf))->check();
        ok($ok, "nginx -t: $name") or diag($out);
        unlike($out, qr/\[warn\]/, "$name: no warnings");
    }
}

# --- what is in YAML: configurations put together as the controllers do

for my $file (sort glob "$dir/kubernetes/*.yaml") {
    my ($name) = $file =~ m{([^/]+)$};
    my $yaml = Kvroute::slurp($file);
    my %snippet;

    # blocks of text, by what is named before them

    while ($yaml =~ /^( *)(?:- )?(?:(main|http|server)-snippets|context: (\S+)\n +value): (?:\|\n((?:\1 +.*\n|\n)+)|(.+)\n)/mg) {
        $snippet{$2 || $3} = $4 // "$5\n";
    }

    if (!%snippet) {
        pass("$name: no snippets");
        next;
    }

    SKIP: {
        skip "$name: needs nginx 1.29.7", 1
            if $yaml =~ /kvroute_upstream|\bresolve;/ && $version lt '001029007';

        my $location = $snippet{'http.server.location'};
        my ($made) = ($snippet{http} // '') =~ /kvroute_upstream (\S+)/;
        my $upstream = '';

        # the upstream that the controller would have made

        if ($made) {
            $made =~ s/^~\^?(\w+)/$1vllm/;
            $upstream = "upstream $made { zone $made 256k;"
                        . " random two least_conn; server 127.0.0.1:1;"
                        . " keepalive 16; }";
            $location = "proxy_pass http://$made; " . ($location // '');
        }

        my $server = $snippet{server} // "location / { $location }";

        my $conf = "http {\n%%TEMP%%\naccess_log off;\n$snippet{http}\n$upstream\n"
                   . "server { listen 127.0.0.1:%%PORT%%; $server }\n}\n";

        # no DNS in here

        $conf =~ s/resolver \S+/resolver 127.0.0.1/;

        my ($ok, $out) = $t->conf($conf)->check();
        ok($ok, "nginx -t: $name") or diag($out);
        unlike($out, qr/\[warn\]/, "$name: no warnings");
    }
}

# --- requests

my $log = "$t->{dir}/llm.log";

{
    $t->conf(local_servers(example(Kvroute::slurp("$dir/nginx/simple.conf"))));
    $t->run();

    my $body = chat(text(20_000, 1));
    my %got;

    $got{$t->post('/v1/chat/completions', $body)->{headers}{'x-backend'}}++
        for 1 .. 5;
    is(scalar keys %got, 1, 'simple: affinity');
    is($t->get('/kvroute/')->{status}, 200, 'simple: status');
    is($t->get('/kvroute-api/')->{status}, 200, 'simple: control');

    wait_for(sub { 5 <= grep { /reason=/ } split /\n/, Kvroute::slurp($log) });

    my $out = `awk -f $dir/nginx/hit-share.awk $log`;
    like($out, qr/^127\.0\.0\.1:\d+ +5 requests  hit +79\.\d%  regret +0\.0%$/m,
         'hit-share.awk');

    like(awk("$dir/nginx/README.md"),
         qr/^127\.0\.0\.1:\d+ hit 79\.\d% regret 0\.0%$/m,
         'the same in one line');

    $t->stop();
}

# the one line of awk in a document, on the log there is

sub awk {
    my ($file) = @_;

    my ($line) = Kvroute::slurp($file) =~ /^    (awk '.*)$/m or return '';
    $line =~ s{/var/log/nginx/llm\.log}{$log};

    return `$line`;
}

# what the documents say to begin with, and their log format with their awk

for my $file ('README.md', 'docs/first-steps.md') {
    my ($conf) = Kvroute::slurp("$root/$file")
                 =~ /^```nginx\n(.*?kvroute_zone .*?)^```/ms;

    $conf = "http {\n$conf}\n" unless $conf =~ /^http \{/m;
    unlink $log;

    my ($ok, $out) = $t->conf(local_servers(example($conf)))->check();
    ok($ok, "$file: nginx -t") or diag($out);
    unlike($out, qr/\[warn\]/, "$file: no warnings");

    $t->run();

    my $body = chat(text(20_000, 7));
    is($t->post('/v1/chat/completions', $body)->{status}, 200,
       "$file: served") for 1 .. 5;
    is($t->get('/kvroute/')->{status}, 200, "$file: status");

    wait_for(sub { 5 <= grep { /reason=.* ttft=\S/ }
                         split /\n/, Kvroute::slurp($log) });

    like(awk("$root/docs/operations.md"),
         qr/^127\.0\.0\.1:\d+ hit 79\.\d% regret 0\.0%$/m,
         "$file: its log, by the awk of operations.md");

    my ($format) = $conf =~ /(log_format kv .*?;)/s;
    my ($same) = Kvroute::slurp("$root/docs/operations.md")
                 =~ /(log_format kv .*?;)/s;
    s/\s+/ /g for $format, $same;
    is($format, $same, "$file: the same format as there");

    $t->stop();
}

{
    $t->conf(local_servers(example(Kvroute::slurp("$dir/nginx/two-pools.conf"))));
    $t->run();

    my %of = (B0 => 'general', B1 => 'general', B2 => 'code', B3 => 'code');

    for my $case ([ 'llama', 'general' ], [ 'qwen-Coder-32b', 'code' ],
                  [ 'coder', 'code' ], [ '', 'general' ])
    {
        my ($model, $pool) = @$case;
        my $r = $t->post('/v1/chat/completions',
                         chat(text(5_000, 3), model => $model));
        is($of{$r->{headers}{'x-backend'} // ''}, $pool,
           "two pools: \"$model\"");
    }

    $t->stop();
}

{
    $t->conf(local_servers(example(Kvroute::slurp("$dir/nginx/tenants.conf"))));
    $t->run();

    my $body = chat(text(20_000, 5));
    my $as = sub { $t->post('/v1/chat/completions', $body,
                            headers => { Authorization => "Bearer key-of-$_[0]" }) };

    is($as->('nobody')->{status}, 401, 'tenants: unknown');
    is($as->('acme')->{status}, 200, 'tenants: acme') for 1, 2;

    my $matched = sub {
        my $s = 0;
        $s += $_->{matched_bytes} for @{$t->status()->{upstreams}{llm}{peers}};
        return $s;
    };

    my $before = $matched->();
    ok($before > 19_000, 'tenants: his own prompt is matched');
    is($as->('beta')->{status}, 200, 'tenants: beta');
    is($matched->(), $before, 'tenants: nothing of it for another');
}

# --- the rest

SKIP: {
    my $yamllint = which('yamllint') or skip 'yamllint is not installed', 1;
    is(`$yamllint $dir/kubernetes $dir/prometheus 2>&1`, '', 'yamllint');
}

SKIP: {
    my $promtool = which('promtool')
        or skip 'promtool is not here (make promtool)', 1;
    my $out = `$promtool check rules $dir/prometheus/alerts.yaml 2>&1`;
    is($?, 0, 'alert rules') or diag($out);
}

{
    # what the rules and the dashboard ask for is there

    $t->post('/v1/chat/completions', chat(text(20_000, 6)),
             headers => { Authorization => 'Bearer key-of-acme' });
    my $metrics = $t->get('/kvroute/metrics')->{body};
    my %known = map { $_ => 1 } $metrics =~ /^# TYPE (\S+)/mg;

    my $dashboard = decode_json(Kvroute::slurp("$dir/prometheus/grafana.json"));
    my $text = Kvroute::slurp("$dir/prometheus/alerts.yaml")
               . join "\n", map { $_->{expr} } map { @{$_->{targets}} }
                            @{$dashboard->{panels}};

    my %asked = map { s/_bucket$//r => 1 } $text =~ /\b(kvroute_\w+)\b/g;
    is(join(' ', grep { !$known{$_} } sort keys %asked), '',
       'all metrics asked for exist');

    # the time of a whole answer is no time to first token

    is(join(' ', grep { !/\bstream="true"/ }
                 $text =~ /\bkvroute_(?:peer_)?ttft_seconds\w*(\{[^}]*\}|)/g),
       '', 'times to first token are those of streams');

    my %ids = map { $_->{id} => 1 } @{$dashboard->{panels}};
    is(scalar keys %ids, scalar @{$dashboard->{panels}}, 'panels have ids');
}

{
    # the table of fields names each kind and version used

    my $readme = Kvroute::slurp("$dir/kubernetes/README.md");

    for my $file (glob "$dir/kubernetes/*.yaml") {
        my $yaml = Kvroute::slurp($file);

        while ($yaml =~ /^apiVersion: (\S+)\nkind: (\S+)/mg) {
            like($readme, qr/\Q$2\E.*\Q`$1`\E/, "$2 of $1 is listed");
        }
    }
}

# images name the same files as there are

for my $file (glob "$dir/docker/Dockerfile.*") {
    my $text = Kvroute::slurp($file);
    like($text, qr/^FROM .*AS build$/m, "$file: two stages");
    ok(-e "$root/$_", "$file: $_ exists")
        for grep { $_ ne '.' } $text =~ /^COPY ([\w.]+) /mg;
}

$t->done();
