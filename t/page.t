#!/usr/bin/perl

# The status page: nginx sends it unchanged, and Debian's chromium, by
# Playwright, shows the values of the JSON.  Screenshots are in build/page.

use FindBin;
use lib 't/lib';
use Kvroute;

my $t = Kvroute->new();
my $root = "$FindBin::Bin/..";
my $build = $ENV{BUILD} || "$root/build";
my $dir = "$root/ngx_http_kvroute_module";

# the browser's words are the test's own

sub browser {
    my ($t) = @_;

    return 'KVROUTE_SANITIZED: the page is the same' if $ENV{KVROUTE_SANITIZED};
    return 'tested with 1 worker' if ($ENV{KVROUTE_WORKERS} || 1) != 1;

    for my $cmd (qw(node npm)) {
        return "$cmd is not installed" unless which($cmd);
    }

    my $chromium = which('chromium') or return 'chromium is not installed';

    # the one required package, kept in build

    my $modules = "$build/t/page";

    system('mkdir', '-p', $modules);
    system("cp $root/t/page/package.json $modules/ && cd $modules"
           . " && test -d node_modules/playwright-core"
           . " || (cd $modules && npm install --no-audit --no-fund"
           . " --no-package-lock --ignore-scripts >npm.log 2>&1)");
    return 'npm cannot install playwright-core'
        unless -d "$modules/node_modules/playwright-core";

    $t->engines(3, '--model', 'm', '--speed', 100,
                '--enable-prompt-tokens-details');
    $t->engines(2, '--model', 'm', '--speed', 100);
    $t->{vars}{MANY} = join "\n", map { "server 127.0.1.$_:9;" } 1 .. 64;

    $t->upstream('llm', 'E0 E1 E2',
                 'kvroute_probe interval=100ms; kvroute_engine vllm;',
                 'kvroute_health interval=100ms;');
    $t->upstream('bare', 'E3');
    $t->upstream('deaf', 'kvroute_events port=9;', 'E0');
    $t->upstream('mixed', 'E0 E3');
    $t->upstream('busy', 'kvroute_queue max=8 timeout=1h;', 'E3 max_conns=1');
    $t->upstream('slow', 'kvroute_eject off;', 'E0 E1');
    $t->upstream('gone', 'E0 E1 E4', 'kvroute_health interval=100ms;');
    $t->upstream('hot', 'E0 E1');
    $t->upstream('beside', 'kvroute_shadow zone=z;', 'E0 E1');
    $t->upstream('computes', 'E0 E1 max_fails=0');
    $t->upstream('answers', 'E2');

    $t->conf(<<'EOC')->run();
    kvroute_zone zone=z:2m;
    kvroute_zone zone=y:2m;

    kvroute_request priority=$http_x_class;

    # "llm" comes first: the page shows its peers
%%UPSTREAMS%%

    # an upstream for each incident, because causes are shown for a minute

    upstream many {
        zone many 256k;
        kvroute kv_cache zone=y;
        %%MANY%%
    }

    location / { proxy_pass http://llm; }
    location /pinned/ { kvroute_pin $http_x_pin; proxy_pass http://llm/; }
    location /bare/ { proxy_pass http://bare/; }
    location /mixed/ { kvroute_pin $http_x_pin; proxy_pass http://mixed/; }
    location /busy/ { proxy_pass http://busy/; }
    location /slow/ { kvroute_pin $http_x_pin; proxy_pass http://slow/; }
    location /hot/ {
        kvroute_pin $http_x_pin;
        kvroute_request priority=$http_x_class tenant=$http_x_tenant
                        name=$http_x_tenant;
        proxy_pass http://hot/;
    }
    location /beside/ { proxy_pass http://beside/; }
    location /two/ {
        kvroute_prefill computes min=1k!;
        proxy_pass http://answers/;
    }
    location /many/ { proxy_pass http://many; }
    location /api/ { kvroute_api write=on; }
    location = /favicon.ico { return 204; }
EOC

    local $ENV{NODE_PATH} = "$modules/node_modules";
    local $ENV{CHROMIUM} = $chromium;
    local $ENV{BASE} = "http://127.0.0.1:$t->{vars}{PORT}";
    local $ENV{SHOTS} = "$build/page";

    open my $fh, '-|', 'node', "$root/t/page/page.js" or return "node: $!";

    while (<$fh>) {
        if (/^(not )?ok \d+ - (.*)/) {
            ok(!$1, $2);

        } elsif (/^# (.*)/) {
            diag($1);
        }
    }

    ok(close($fh), 'the browser is done');

    return;
}


my $page = `sh $dir/status/embed -p $dir/status/page.html`;

unlike($page, qr{(?:src|href)\s*=(?!"data:,")|https?://|\@import},
       'nothing from other hosts');
unlike($page, qr/innerHTML|outerHTML|document\.write|eval\(/,
       'text is never markup');

# each cause of health has a sentence, as node reads the page's words

SKIP: {
    skip 'node is not installed', 3 unless which('node');

    my ($rows) = Kvroute::slurp("$dir/core/watch/kvr_verdict.c")
        =~ / rows\[\] = \{(.*?)\n    \};/s;
    my @codes = $rows =~ /\{ "(\w+)"/g;

    my @reasons = map { /names\[\] = \{(.*?)\}/s ? $1 =~ /"(\w+)"/g : () }
        map { Kvroute::slurp("$dir/core/$_.c") } qw(base/kvr_fault
                                                  health/kvr_outlier);
    cmp_ok(@reasons, '>', 30, 'reasons');

    local $ENV{REASONS} = join ' ', grep { $_ ne 'none' } @reasons;

    open my $fh, '-|', 'node', "$root/t/page/words.js",
        map { "$dir/status/$_" } qw(page_words.js page_base.js)
        or die "node: $!";
    my @lines = <$fh>;
    ok(close($fh), 'sentences') or diag(@lines);

    is_deeply([ sort map { /^(\w+): ./ } @lines ], [ sort @codes ],
              'one for each cause');
}

SKIP: {
    my $why = browser($t);
    skip $why, 1 if $why;
}

$t->conf(<<'EOC')->run() unless $t->{master};
EOC

ok($t->get('/kvroute/')->{body} eq $page, 'nginx sends the page unchanged');

$t->done();
