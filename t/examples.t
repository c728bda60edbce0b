#!/usr/bin/perl

# The examples: nginx -t accepts each configuration, also those for Kubernetes,
# and those that can run here pass requests.  YAML, alert rules and the
# dashboard are checked if the tools are installed.
#
# They use all extensions: kvroute_share, kvroute_events, kvroute_prefill,
# kvroute_continue, kvroute_budget.

use FindBin;
use lib 't/lib';
use JSON::PP;
use Kvroute;

use MIME::Base64;

my $root = "$FindBin::Bin/..";
my $dir = "$root/examples";

my $t = Kvroute->new();

$t->backend("B$_") for 0 .. 5;

# an example, unchanged except for machine-specific parts

sub example {
    my ($conf) = @_;

    $conf =~ s/load_module \S+;//g;
    $conf =~ s/\botel_\w+\s(?:\{[^}]*\}|[^;{]*;)//g;    # Debian has no such module
    $conf =~ s/worker_processes \w+;//;
    $conf =~ s/events \{[^}]*\}//;
    $conf =~ s/^http \{/http {\n%%TEMP%%\naccess_log off;/m;
    $conf =~ s!/var/log/nginx/!$t->{dir}/!g;
    $conf =~ s!((?:key|password)_file=)\S*/!$1$t->{dir}/!g;
    $conf =~ s!/etc/nginx/(?=[\w-]+\.(?:crt|header)\b|server\.key)!$t->{dir}/!g;
    $conf =~ s!snapshot=\S+/!snapshot=$t->{dir}/!g;
    $conf =~ s/listen (?:8080|80|127\.0\.0\.1:8080);/listen 127.0.0.1:%%PORT%%;/;
    $conf =~ s/listen 443 ssl;/listen 127.0.0.1:%%PORT%% ssl;/;
    $conf =~ s/listen 127\.0\.0\.1:8081;/listen unix:%%DIR%%\/status.sock;/;

    return $conf;
}

# secrets in examples

for my $name (qw(kvroute.key kvroute.password)) {
    Kvroute::write_file("$t->{dir}/$name",
                        encode_base64(join '', map { chr int rand 256 } 1 .. 192));
    chmod 0600, "$t->{dir}/$name";
}

Kvroute::write_file("$t->{dir}/engines.header", "Authorization: Bearer k\n");
chmod 0600, "$t->{dir}/engines.header";

system("openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=t -keyout"
       . " $t->{dir}/server.key -out $t->{dir}/server.crt 2>/dev/null"
       . " && cp $t->{dir}/server.crt $t->{dir}/engines-ca.crt");

# addresses become backends, in order

sub local_servers {
    my ($conf) = @_;
    my $n = 0;

    $conf =~ s/server\ (?:10\.\S+?:8000|127\.0\.0\.1:900\d)
              /"server 127.0.0.1:" . $t->{vars}{'B' . $n++}/gex;

    return $conf;
}

my $version = $t->version();
my $ssl = `@{$t->{bin}} -V 2>&1` =~ /--with-http_ssl_module/;

# --- nginx's own

for my $file (sort glob "$dir/nginx/*.conf") {
    my ($name) = $file =~ m{([^/]+)$};
    my $conf = Kvroute::slurp($file);

    SKIP: {
        skip "$name: names are resolved at run time since nginx 1.27.3", 1
            if $conf =~ /\bresolve\b/ && $version lt '001027003';
        skip "$name: no TLS here", 2
            if $conf =~ /\bssl;/ && !($ssl && -e "$t->{dir}/server.crt");

        my ($ok, $out) = $t->conf(example($conf))->check();
        ok($ok, "nginx -t: $name") or diag($out);
        unlike($out, qr/\[warn\]/, "$name: no warnings");
    }
}

# --- YAML: configurations as the controllers generate them

# YAML documents, by Python, whose yaml comes with yamllint

sub yaml {
    my ($file) = @_;

    return @{decode_json(`/usr/bin/python3 -c 'import json, sys, yaml
print(json.dumps([d for d in yaml.safe_load_all(open(sys.argv[1])) if d]))' $file`)};
}

# the controllers' names of upstreams: of a VirtualServer, or of a route's
# backend, which has a suffix with sessions

sub upstream_names {
    my @docs = @_;

    return map { my $d = $_; my $m = $d->{metadata};
        map({ "vs_$m->{namespace}_$m->{name}_$_->{name}" }
            @{$d->{spec}{upstreams} || []}),
        map({ my $n = "$m->{namespace}_$_->{name}_$_->{port}"; ($n, "${n}_0") }
            map { @{$_->{backendRefs} || []} } @{$d->{spec}{rules} || []}),
        map({ my $host = $_->{host};
              map { my $s = $_->{backend}{service};
                    "$m->{namespace}-$m->{name}-$host-$s->{name}-$s->{port}{number}" }
                  @{($_->{http} || {})->{paths} || []} }
            @{$d->{spec}{rules} || []})
    } grep { $_->{kind} =~ /^(?:VirtualServer|HTTPRoute|Ingress)$/ } @docs;
}

for my $file (sort glob "$dir/kubernetes/*.yaml") {
    my ($name) = $file =~ m{([^/]+)$};
    my $yaml = Kvroute::slurp($file);
    my %snippet;

    # blocks of text, by the name before them

    while ($yaml =~ /^( *)(?:- )?(?:(main|http|server)-snippets|context: (\S+)\n +value): (?:\|\n((?:\1 +.*\n|\n)+)|(.+)\n)/mg) {
        $snippet{$2 || $3} = $4 // "$5\n";
    }

    if (!%snippet) {
        pass("$name: no snippets");
        next;
    }

    SKIP: {
        skip "$name: needs nginx 1.29.7", 1
            if $yaml =~ /kvroute_upstream|\bresolve\b/ && $version lt '001029007';

        my $location = $snippet{'http.server.location'};
        my ($made) = $yaml =~ /kvroute_upstream/
            ? upstream_names(yaml($file)) : ();
        my $upstream = '';

        # the upstream that the controller would generate

        if ($made) {
            $upstream = "upstream $made { zone $made 256k;"
                        . " random two least_conn; server 127.0.0.1:1;"
                        . " keepalive 16; }";
            $location = "proxy_pass http://$made; " . ($location // '');
        }

        my $server = $snippet{server} // "location / { $location }";

        my $conf = "http {\n%%TEMP%%\naccess_log off;\n$snippet{http}\n$upstream\n"
                   . "server { listen 127.0.0.1:%%PORT%%; $server }\n}\n";

        # no DNS here

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

    my $out = `awk -f $dir/nginx/matched-share.awk $log`;
    like($out, qr/^127\.0\.0\.1:\d+ +5 requests  matched +79\.\d%  regret +0\.0%$/m,
         'matched-share.awk');

    like(awk("$dir/nginx/README.md"),
         qr/^127\.0\.0\.1:\d+ matched 79\.\d% regret 0\.0%$/m,
         'the same in one line');

    $t->stop();
}

# the one-line awk script in a document, on this log

sub awk {
    my ($file) = @_;

    my ($line) = Kvroute::slurp($file) =~ /^    (awk '.*)$/m or return '';
    $line =~ s{/var/log/nginx/llm\.log}{$log};

    return `$line`;
}

# the documents' first configuration, and their log format with their awk

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

    like(`awk -f $dir/nginx/matched-share.awk $log`,
         qr/^127\.0\.0\.1:\d+ +5 requests  matched +79\.\d%  regret +0\.0%$/m,
         "$file: its log, by matched-share.awk");

    my ($format) = $conf =~ /(log_format kv .*?;)/s;
    my ($same) = Kvroute::slurp("$root/README.md") =~ /(log_format kv .*?;)/s;
    s/\s+/ /g for $format, $same;
    is($format, $same, "$file: the README's format");

    $t->stop();
}

# all configurations in the documentation, in their context

for my $file (sort glob "$root/docs/*.md") {
    my ($name) = $file =~ m{(docs/[^/]+)$};
    my $n = 0;

    for my $block (Kvroute::slurp($file) =~ /^```nginx\n(.*?)^```/msg) {
        $n++;
        next if $block =~ /^load_module/m;

        next if !$ssl
                && $block =~ m{^ *kvroute_engine .*\bssl\b|https://}m;

        $block =~ s!/var/log/nginx/!$t->{dir}/!g;
        $block =~ s/^.*proxy_ssl_(?:verify|trusted_certificate) .*\n//mg;
        $block =~ s/\s(?:trusted=[^\s;]+|header=\@[^\s;]+)//g;
        $block =~ s!/(?:etc/nginx|var/lib/kvroute)/!$t->{dir}/!g;
        $block =~ s/listen \S+;/listen 127.0.0.1:%%PORT%%;/;

        my $before = '';

        $before .= "kvroute_zone zone=llm:16m;\n" if $block !~ /^ *kvroute_zone /m;
        $before .= "upstream llm { zone llm_peers 256k; kvroute zone=llm;"
                   . " server 127.0.0.1:1; server 127.0.0.1:2; }\n" if $block !~ /^ *upstream llm /m;
        $before .= "map \$uri \$tenant { default x; }\n"
            if $block =~ /\$tenant/ && $block !~ /\$tenant +\{/;

        $before .= "upstream $_ { zone ${_}_peers 256k; kvroute zone=llm;"
                   . " server $_:1; server $_:2; }\n" =~ s/server \K(\w)\w+/
                     '127.0.0.' . ord $1/ger
            for grep { $block =~ /^ *kvroute_prefill /m
                       && $block !~ /^ *upstream $_ /m } qw(prefillers decoders);

        my ($in, $out) = $block =~ /^(?:upstream|map|server|split_clients|log_format|kvroute_zone) /m
            ? ('', '') : ('server { listen 127.0.0.1:%%PORT%%; ', '}');

        ($in, $out) = ($in . 'location / { ', '}' . $out)
            if length $in && $block !~ /^location /m;

        my ($ok, $said) = $t->conf("http {\n%%TEMP%%\naccess_log off;\n$before$in$block\n$out}\n")
                            ->check();

        ok($ok, "$name: configuration $n") or diag($said);
        unlike($said, qr/\[warn\]/, "$name: configuration $n: no warnings");
    }
}

{
    my $arms = "$t->{dir}/arms.log";

    open my $fh, '>', $arms or die "$arms: $!";
    print $fh "1 200 arm=- cached=1200 of=1500 ttft=0.050\n",
              "1 200 arm=- cached=1500 of=1500 ttft=0.030\n",
              "1 200 arm=plain cached=300 of=1500 ttft=0.200\n",
              "1 502 arm=plain cached=- of=- ttft=-\n";
    close $fh;

    is(join('', sort `awk -f $dir/nginx/arms.awk $arms`),
       "kvroute      2 requests  cached  90.0%  ttft 0.040 s\n"
       . "plain        1 requests  cached  20.0%  ttft 0.200 s\n", 'arms.awk');
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
    ok($before > 19_000, 'tenants: a tenant\'s own prompt is matched');
    is($as->('beta')->{status}, 200, 'tenants: beta');
    is($matched->(), $before, 'tenants: no match for another tenant');
}

# --- tools

SKIP: {
    my $yamllint = which('yamllint') or skip 'yamllint is not installed', 1;
    is(`$yamllint $dir/kubernetes $dir/prometheus $root/t/prometheus 2>&1`, '',
       'yamllint');
}

SKIP: {
    my $promtool = which('promtool')
        or skip 'promtool is not here (make promtool)', 3;
    my $out = `$promtool check rules $dir/prometheus/alerts.yaml 2>&1`;
    is($?, 0, 'alert rules') or diag($out);

    # the rules' alerts in incidents, and in their absence

    system('cp', "$dir/prometheus/alerts.yaml",
           "$root/t/prometheus/alerts.test.yaml", $t->{dir});
    $out = `cd $t->{dir} && $promtool test rules alerts.test.yaml 2>&1`;
    is($?, 0, 'alerts') or diag($out);

    # the dashboard's expressions, as rules

    my $n = 0;
    my $dashboard = decode_json(Kvroute::slurp("$dir/prometheus/grafana.json"));

    Kvroute::write_file("$t->{dir}/dashboard.yaml", "groups:\n- name: d\n  rules:\n"
        . join '', map { my $e = $_->{expr} =~ s/\$__rate_interval/1m/gr
                                          =~ s/\$(?:upstream|instance)/.*/gr;
                         $n++; "  - {record: 'e:$n', expr: '$e'}\n" }
                   map { @{$_->{targets} || []} } @{$dashboard->{panels}});
    $out = `$promtool check rules $t->{dir}/dashboard.yaml 2>&1`;
    is($?, 0, "the dashboard's expressions") or diag($out);
}

{
    # the metrics of the rules and the dashboard exist

    $t->post('/v1/chat/completions', chat(text(20_000, 6)),
             headers => { Authorization => 'Bearer key-of-acme' });
    my $metrics = $t->get('/kvroute/metrics')->{body};
    my %known = map { $_ => 1 } $metrics =~ /^# TYPE (\S+)/mg;

    my $dashboard = decode_json(Kvroute::slurp("$dir/prometheus/grafana.json"));
    my @expr = map { $_->{expr} } map { @{$_->{targets} || []} }
                   @{$dashboard->{panels}};

    is(join("\n", grep { /\bkvroute_\w+(?!\w|\{instance=~"\$instance")/ } @expr), '',
       'each expression is for the chosen hosts');

    my $text = Kvroute::slurp("$dir/prometheus/alerts.yaml")
               . join "\n", @expr;
    $text =~ s/^ *#.*//mg;

    my %asked = map { s/_(?:bucket|sum|count)$//r => 1 } $text =~ /\b(kvroute_\w+)\b/g;
    is(join(' ', grep { !$known{$_} } sort keys %asked), '',
       'all metrics asked for exist');

    # the time of a whole answer is not a time to first token

    is(join(' ', grep { !/\bstream="true"/ }
                 $text =~ /\bkvroute_(?:peer_)?ttft_seconds\w*(\{[^}]*\}|)/g),
       '', 'times to first token are of streams');

    my %ids = map { $_->{id} => 1 } @{$dashboard->{panels}};
    is(scalar keys %ids, scalar @{$dashboard->{panels}}, 'panels have ids');

    # a row of figures on top, each with limits; no panel covers another

    my @stat = grep { $_->{type} eq 'stat' } @{$dashboard->{panels}};
    my %place;

    cmp_ok(scalar @stat, '>=', 5, 'figures');
    is(scalar(grep { $_->{gridPos}{y} == 0
                     && @{$_->{fieldConfig}{defaults}{thresholds}{steps}} > 1 }
                   @stat), scalar @stat, 'with thresholds');

    for my $g (map { $_->{gridPos} } @{$dashboard->{panels}}) {
        $place{join ',', $_ % $g->{w} + $g->{x}, int($_ / $g->{w}) + $g->{y}}++
            for 0 .. $g->{w} * $g->{h} - 1;
    }

    is(join(' ', grep { $place{$_} > 1 || /^(\d+)/ && $1 > 23 } sort keys %place),
       '', 'panels have places of their own');
}

{
    # the table of fields has each kind and version in use

    my $readme = Kvroute::slurp("$dir/kubernetes/README.md");

    for my $file (glob "$dir/kubernetes/*.yaml") {
        my $yaml = Kvroute::slurp($file);

        while ($yaml =~ /^apiVersion: (\S+)\nkind: (\S+)/mg) {
            like($readme, qr/\Q$2\E.*\Q`$1`\E/, "$2 of $1 is listed");
        }
    }
}

# --- two hosts, a store and a balancer by compose: nginx reads their
# configurations

SKIP: {
    skip "Python's yaml is not installed", 3
        if system('/usr/bin/python3 -c "import yaml" 2>/dev/null');

    my ($compose) = yaml("$dir/docker/compose.yaml");
    my $services = $compose->{services};

    for my $name (sort keys %{$compose->{configs}}) {
        my $conf = example($compose->{configs}{$name}{content});

        $conf =~ s/^(?:pid|error_log|worker_shutdown_timeout) .*//mg;
        $conf =~ s/^ *\w+_temp_path .*//mg;
        $conf =~ s/server router-\d:8080/server 127.0.0.1:1/g;

        my ($ok, $out) = $t->conf($conf)->check();
        ok($ok, "compose.yaml: nginx -t: $name") or diag($out);
    }

    my @wanted = map { map { $_->{source} } @{$_->{configs} || []} }
                 values %$services;
    is(join(' ', grep { !$compose->{configs}{$_} } @wanted), '',
       'compose.yaml: configurations are there');
    is(join(' ', map { $_->{image} } @$services{qw(router-1 router-2)}),
       'nginx-kvroute:1.30.4 nginx-kvroute:1.30.4', 'compose.yaml: our image');
}

# --- images: pinned, in two stages with the same C library, without root, with a
# signal that lets streams finish

for my $file (glob "$dir/docker/Dockerfile.*") {
    my $text = Kvroute::slurp($file);
    my ($name) = $file =~ /Dockerfile\.(\w+)$/;
    my ($build, $final) = $text =~ /^(FROM .*AS build\n.*?)^(FROM .*)\z/ms;

    ok(defined $final, "$name: two stages") or next;

    my %arg = $text =~ /^ARG (\w+)=(\S+)$/mg;
    my @base = map { s/\$\{(\w+)\}/$arg{$1} \/\/ "its-$1"/ger }
               $text =~ /^FROM (\S+)/mg;

    like($_, qr/:\d+\.\d+(?:\.\d+)?(?:-|$)/, "$name: $_ is pinned") for @base;
    is($build =~ /\bapk add\b/ ? 'musl' : 'glibc',
       $name =~ /^(?:alpine|ngf)$/ ? 'musl' : 'glibc',
       "$name: built with the library that it runs with");

    # probes and checks use TLS in each image

    if ($name ne 'debian12') {
        unlike($build, qr/nginx-dev/, "$name: no headers of Debian's nginx");
        like($build, qr/--with-http_ssl_module/, "$name: built with TLS");
        like($build, qr/\b(?:libssl|openssl)-dev\b/, "$name: and its headers");
    }

    my ($user) = $final =~ /.*^USER (\S+)$/ms;
    isnt($user, 'root', "$name: not as root");
    like($final, qr/^USER \Q$user\E\n.*?^RUN .*?nginx -t\b/ms,
         "$name: the module is loaded as $user");

    # the Ingress Controller is the first process of its image, and dies on QUIT

    like($final, $name eq 'nic' ? qr/^STOPSIGNAL SIGTERM$/m
                                : qr/^STOPSIGNAL SIGQUIT$/m, "$name: signal");
    like($final, qr/org\.opencontainers\.image\.$_=/, "$name: label $_")
        for qw(title licenses base.name);
    ok($final !~ /^COPY (?!--from=build)/m, "$name: no sources in the image");
    my @copied = map { split ' ' } $build =~ /^COPY (.+) \S+$/mg;

    ok(-e "$root/$_", "$name: $_ exists") for @copied;
    is(join(' ', grep { my $f = s{.*/}{}r; !grep { /^(?:\Q$f\E|\.)$/ } @copied }
                 glob "$root/config*"), '', "$name: all config files are copied");
}

{
    my @lines = grep { !/^(?:#|$)/ }
                split /\n/, Kvroute::slurp("$root/.dockerignore");

    is($lines[0], '*', '.dockerignore: nothing but');
    ok(!(grep { /build|\.git/ } @lines), 'no other files than sources');

    my @sent = map { /^!(\S+)/ } @lines;

    for my $file ('Makefile', (map { s{.*/}{}r } glob "$root/config*"),
                  map { Kvroute::slurp("$root/$_") =~ /^include (\S+)/mg }
                      'Makefile', 't/unit/Makefile.inc')
    {
        ok(scalar(grep { "$file/" =~ m{^\Q$_\E/} } @sent), "$file is sent");
    }
}

# --- manifests

# labels that a pod must have

sub selects {
    my ($selector, $labels) = @_;
    return !grep { ($labels->{$_} // '') ne $selector->{$_} } keys %$selector;
}

# a Deployment with its objects

sub deployment {
    my ($name, @docs) = @_;
    my %of;

    push @{$of{$_->{kind}}}, $_ for @docs;

    my ($deployment) = @{$of{Deployment}};
    my $spec = $deployment->{spec};
    my $pod = $spec->{template}{spec};
    my $labels = $spec->{template}{metadata}{labels};
    my $c = $pod->{containers}[0];
    my %port = map { $_->{name} => $_->{containerPort} } @{$c->{ports}};

    is(join(' ', grep { !$_->{metadata}{name} || !$_->{metadata}{namespace}
                        || !$_->{apiVersion} } @docs), '', "$name: metadata");
    ok(selects($spec->{selector}{matchLabels}, $labels), "$name: its own pods");

    for my $service (@{$of{Service}}) {
        my $s = $service->{spec};

        if (($s->{clusterIP} // '') eq 'None') {
            ok(!selects($s->{selector}, $labels), "$name: engines are other pods");
            next;
        }

        ok(selects($s->{selector}, $labels), "$name: the service's pods");
        ok($port{$_->{targetPort}}, "$name: port $_->{targetPort}")
            for @{$s->{ports}};
        isnt($_->{targetPort}, 'status', "$name: the status is not exposed")
            for @{$s->{ports}};
    }

    # the configuration

    my ($map) = grep { $_->{metadata}{name}
                       eq $pod->{volumes}[0]{configMap}{name} } @{$of{ConfigMap}};
    my $conf = $map->{data}{'nginx.conf.template'};
    my %volume = map { $_->{name} => 1 } @{$pod->{volumes}};

    is(join(' ', grep { !$volume{$_->{name}} || $_->{subPath} }
                 @{$c->{volumeMounts}}), '', "$name: mounts");
    is(join(' ', sort { $a <=> $b } values %port),
       join(' ', sort { $a <=> $b } $conf =~ /listen (\d+);/g), "$name: ports");
    like($conf, qr/^ {4}server \{\s+listen $port{status};.*location = \Q$c->{readinessProbe}{httpGet}{path}\E /ms,
         "$name: the location of readiness");
    is($c->{readinessProbe}{httpGet}{port}, 'status', "$name: by its port");
    is($spec->{template}{metadata}{annotations}{'prometheus.io/port'},
       $port{status}, "$name: metrics");

    # streams finish: all end before the signal, and before the kill

    my ($grace) = $conf =~ /worker_shutdown_timeout (\d+)s;/;
    my $stop = join ' ', @{$c->{lifecycle}{preStop}{exec}{command}};
    my ($pid) = $conf =~ /^pid (\S+);/m;

    cmp_ok($grace, '<', $pod->{terminationGracePeriodSeconds}, "$name: streams end");
    like($stop, qr/sleep \d+; nginx .*-s quit; while test -e \Q$pid\E; do/,
         "$name: and the pod waits for them");

    # memory

    my ($zone) = $conf =~ /kvroute_zone zone=\w+:(\d+)m\b/;
    my ($mb) = $c->{resources}{requests}{memory} =~ /^(\d+)Mi$/;

    cmp_ok($mb, '>', $zone + 64, "$name: memory for the zone");
    is($c->{resources}{limits}{memory}, "${mb}Mi", "$name: and no more");
    ok($c->{resources}{requests}{cpu}, "$name: CPU");

    my $s = $c->{securityContext};

    ok($pod->{securityContext}{runAsNonRoot} && $s->{readOnlyRootFilesystem}
       && !$s->{allowPrivilegeEscalation} && !$pod->{automountServiceAccountToken}
       && $s->{capabilities}{drop}[0] eq 'ALL', "$name: no rights");

    for my $policy (@{$of{NetworkPolicy} || []}) {
        my $p = $policy->{spec};

        ok(selects($p->{podSelector}{matchLabels}, $labels),
           "$name: the policy's pods");
        is(join(' ', grep { !$port{$_} }
                     map { map { $_->{port} } @{$_->{ports}} } @{$p->{ingress}}),
           '', "$name: the policy's ports");
        is(scalar(grep { $_->{ports}[0]{port} eq 'status' && !$_->{from} }
                  @{$p->{ingress}}), 0, "$name: the status is not public");
        is($p->{egress}[0]{ports}[0]{port}, ($conf =~ /:(\d+)\s+resolve/)[0],
           "$name: and to the engines");
    }

    for my $budget (@{$of{PodDisruptionBudget} || []}) {
        ok(selects($budget->{spec}{selector}{matchLabels}, $labels),
           "$name: the budget's pods");
    }

    return $conf;
}

SKIP: {
    skip "Python's yaml is not installed", 1
        if system('/usr/bin/python3 -c "import yaml" 2>/dev/null');

    my $out = "$t->{dir}/chart.yaml";
    my $conf = deployment('nginx.yaml', yaml("$dir/kubernetes/nginx.yaml"));

    (my $text = Kvroute::slurp("$dir/kubernetes/nginx.yaml")) =~ s/^(---\n)(?:#.*\n)+/$1/;
    is($text, `$root/t/chart llm-router ml`, 'nginx.yaml equals the chart\'s');

    # the chart with other values, also by helm if it is installed

    my $helm = which('helm');

    for my $set ([], [qw(replicas=2 autoscaling.enabled=true)],
                 [qw(replicas=2 share.enabled=true unbroken.enabled=true
                     budget.rate=100k/m)],
                 [qw(engines.createService=false networkPolicy.enabled=false
                     zone.megabytes=1000 gracePeriod=100 workers=8)])
    {
        system("$root/t/chart llm ml @$set > $out") == 0 or fail("t/chart @$set");
        my @docs = yaml($out);
        my %kinds;

        $kinds{$_->{kind}}++ for @docs;
        deployment("chart @$set", @docs);
        is($kinds{PodDisruptionBudget} // 0, "@$set" =~ /replicas/ ? 1 : 0,
           'a budget with several replicas');

        for my $scaled (grep { $_->{kind} eq 'ScaledObject' } @docs) {
            my ($metric) = $scaled->{spec}{triggers}[0]{metadata}{query}
                           =~ /\((kvroute_\w+)\{upstream="llm"\}\)$/;
            like($t->get('/kvroute/metrics')->{body}, qr/^# TYPE $metric gauge$/m,
                 'the metric of autoscaling exists');
        }

        next unless $helm;

        system("$helm template llm $root/packaging/chart -n ml "
               . join(' ', map { "--set $_" } @$set) . " > $out.helm") == 0
            or fail("helm template @$set");

        my $json = JSON::PP->new->canonical;
        my @both = map { join "\n", sort map { $json->encode($_) } @$_ }
                   \@docs, [ yaml("$out.helm") ];
        is($both[0], $both[1], "helm gives the same: @$set");
    }

    # its configuration, with an engine at the name

    $t->stop();
    $t->{vars}{STATUS} = $t->port();
    $t->{vars}{ENGINE} = $t->{vars}{B0};

    $conf =~ s/^pid .*|^error_log .*|^worker_processes .*//mg;
    $conf =~ s/(?<=listen )8080/127.0.0.1:%%PORT%%/;
    $conf =~ s/(?<=listen )8081/127.0.0.1:%%STATUS%%/;
    $conf =~ s!/tmp/(\w+);!$t->{dir}/$1;!g;
    $conf =~ s!/dev/stdout!$t->{dir}/llm.log!;
    $conf =~ s/\$\{NGINX_LOCAL_RESOLVERS\}/127.0.0.1/;
    $conf =~ s/load_module .*;|events .*//g;

    SKIP: {
        skip 'names are resolved at run time since nginx 1.27.3', 2
            if $version lt '001027003';

        my ($ok, $print) = $t->conf($conf)->check();
        ok($ok, 'nginx -t: the chart') or diag($print);
        unlike($print, qr/\[warn\]/, 'no warnings');
    }

    $conf =~ s/server \S+:8000\s+resolve/server 127.0.0.1:%%ENGINE%%/g;
    $t->conf($conf)->run();

    my $status = sub {
        local $t->{vars}{PORT} = $t->{vars}{STATUS};
        return $t->get($_[0]);
    };

    is($t->post('/v1/chat/completions', chat(text(20_000, 1)))->{status}, 200,
       'the chart: served');
    is($t->get('/kvroute/')->{status}, 404, 'no status for clients');
    is($status->('/kvroute/metrics')->{status}, 200, 'but for Prometheus');
    is($status->('/ready')->{status}, 200, 'ready');

    # the basis of the pod's memory

    my @rss = map { Kvroute::slurp("/proc/$_/status") =~ /^RssAnon:\s+(\d+) kB/m }
              $t->{master}, $t->workers();
    is(scalar(grep { $_ > 16 << 10 } @rss), 0, 'a process takes less than 16 MB')
        unless $ENV{KVROUTE_SANITIZED};

    # no engine: not ready, and requests of other upstreams do not fail

    $t->stop();
    $t->{vars}{ENGINE} = $t->port();
    $t->conf($conf)->run();
    is($status->('/ready')->{status}, 502, 'no engine, not ready');

    my ($peer) = @{decode_json($status->('/kvroute/json')->{body})
                   ->{upstreams}{llm}{peers}};
    is("$peer->{state} $peer->{fails} $peer->{requests}", 'up 0 0',
       'which marks no engine failed');
    $t->stop();

    # --- the controllers' examples

    for my $name (qw(f5-attach-by-name f5-ingress gateway-fabric)) {
        my @docs = yaml("$dir/kubernetes/$name.yaml");
        my ($re) = Kvroute::slurp("$dir/kubernetes/$name.yaml")
                   =~ /^ *kvroute_upstream ~(\S+)/m;

        like($_, qr/$re/, "$name: $_ is attached") for upstream_names(@docs);
        unlike("ml_vllm_80001", qr/$re/, "$name: and no other one");
    }

    for my $name (qw(f5-attach-by-name f5-ingress f5-ingress-controller)) {
        my ($map, $server) = yaml("$dir/kubernetes/$name.yaml");

        like($map->{data}{'main-snippets'}, qr/^load_module /, "$name: module");

        for my $u (@{$server->{spec}{upstreams} || []}) {
            ok($u->{'client-body-buffer-size'}, "$name: bodies in memory");
            ok(!$u->{keepalive}, "$name: no connections that engines close");
        }
    }

    my %doc;
    $doc{$_->{kind}} = $_ for yaml("$dir/kubernetes/gateway-fabric.yaml");

    my ($proxy, $gateway, $policy, $filter, $route) =
        @doc{qw(NginxProxy Gateway SnippetsPolicy SnippetsFilter HTTPRoute)};
    my $meta = $gateway->{metadata};
    my $ref = $gateway->{spec}{infrastructure}{parametersRef};

    is("$ref->{kind} $ref->{name} $meta->{namespace}",
       "NginxProxy $proxy->{metadata}{name} $proxy->{metadata}{namespace}",
       'gateway-fabric: our image');
    is($gateway->{spec}{listeners}[0]{allowedRoutes}{namespaces}{selector}
           {matchLabels}{'kubernetes.io/metadata.name'},
       $route->{metadata}{namespace}, 'routes are allowed');
    is("@{$policy->{spec}{targetRefs}[0]}{qw(kind name)}"
       . " $policy->{metadata}{namespace}", "Gateway $meta->{name} $meta->{namespace}",
       'the policy is the gateway\'s');
    is(join(' ', map { $_->{context} } @{$policy->{spec}{snippets}}),
       'main http', 'module and zone');
    is(join(' ', map { $_->{context} } @{$filter->{spec}{snippets}}),
       'http.server.location', 'and neither in the route\'s filter');
    is("@{$route->{spec}{parentRefs}[0]}{qw(name namespace)}",
       "@{$meta}{qw(name namespace)}", 'the route\'s gateway');
    is($route->{spec}{rules}[0]{filters}[0]{extensionRef}{name},
       $filter->{metadata}{name}, 'the route\'s filter');

    my $kept = $doc{UpstreamSettingsPolicy};

    is($kept->{spec}{targetRefs}[0]{name},
       $route->{spec}{rules}[0]{backendRefs}[0]{name}, 'connections of the service');
    cmp_ok($kept->{spec}{keepAlive}{timeout} =~ s/s$//r, '<', 5,
           'are closed before the engine closes them');
}

$t->done();
