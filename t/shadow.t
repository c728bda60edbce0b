#!/usr/bin/perl

# kvroute_shadow: next to another method it routes, fails and changes nothing,
# and counts what the policy would have found.

use FindBin;
use lib 't/lib';
use Kvroute;

my $t = Kvroute->new(workers => 1);

$t->backend("B$_") for 0 .. 2;
$t->{vars}{DEAD} = $t->port();

# each method alone, and with a shadow

my %method = (rr => '', least => 'least_conn;', hash => 'hash $arg_k consistent;',
              ip => 'ip_hash;', kept => 'keepalive 4;',
              leastkept => 'least_conn; keepalive 4;',
              turns => '', random => 'random two least_conn;');

# directives that would eject servers, or end retries, cause a warning

my $eject = 'kvroute_eject fails=1 retry_budget=1%;';

my %policy = (turns => 'round_robin', ip => 'least_request', hash => 'random');

for my $m (sort keys %method) {
    my $shadow = 'kvroute_shadow ' . ($policy{$m} || 'kv_cache') . ' zone=z;';

    $shadow .= " $eject" if $m eq 'leastkept';

    # it can come before or after a method

    my %is = (plain => $method{$m},
              shadow => $m eq 'least' ? "$shadow $method{$m}"
                                      : "$method{$m} $shadow");

    $t->upstream("${_}_$m", 'plain', $is{$_}, 'B0 weight=2 max_fails=0',
                 'B1 B2 max_fails=0') for qw(plain shadow);
}

$t->upstream('counted', 'kvroute_shadow zone=z;', 'B0 B1 B2 max_fails=0');
$t->upstream('backed', 'kvroute_shadow zone=z;', 'DEAD', 'B1 backup');

$t->conf(<<"EOF");
    log_format kv '\$arg_n \$upstream_addr \$kvroute_peer \$kvroute_reason '
                  '\$kvroute_matched_bytes \$kvroute_best_bytes';
    access_log %%DIR%%/access.log kv;

    upstream plain_dead { server 127.0.0.1:%%DEAD%%; server 127.0.0.1:%%DEAD%%; }
    upstream shadow_dead {
        kvroute_shadow zone=z;
        server 127.0.0.1:%%DEAD%%;
        server 127.0.0.1:%%DEAD%%;
    }

    proxy_http_version 1.1;
    proxy_set_header Connection "";
    proxy_next_upstream error timeout http_503 non_idempotent;
@{[ map { "        location /$_/ { proxy_pass http://" . tr{/}{_}r . "; }\n" }
map { ("plain/$_", "shadow/$_") } sort(keys %method), 'dead' ]}
    location /counted { proxy_pass http://counted; }
    location /bypassed { kvroute_policy off; proxy_pass http://counted; }
    location /backed { proxy_pass http://backed; }
EOF

my ($ok, $out) = $t->check();
ok($ok, 'accepted');
is_deeply([ map { /\[warn\] (.*) in \/nginx/ } grep { /kvroute/ } split /^/, $out ],
          [ '"kvroute_eject" in upstream "shadow_leastkept"' ],
          'with no other warning');

$t->run();

my @bodies = map { chat(text(4000, $_)) } 1 .. 4;


# answers of both to the same requests: some wait, one is retried

my $held = 0;

sub answers {
    my ($uri) = @_;
    my ($file, @s, @answers) = ('hold' . ++$held);

    for my $n (1, 2) {
        push @s, $t->start("POST $uri?k=h$n", $bodies[$n],
                     headers => { map { ("X-B$_" => "wait $file") } 0 .. 2 });
        wait_for(sub {
            $n == grep { /k=h\d$/ && /^\Q$uri/ }
                  map { $t->backend_log("B$_") } 0 .. 2;
        });
    }

    for my $i (1 .. 8) {
        push @answers, $t->post("$uri?k=$i", $bodies[$i % 4],
            headers => $i == 4 ? { 'X-B0' => 'close' }
                     : $i == 6 ? { 'X-B1' => 'status 503' } : {});
    }

    push @answers, $t->get("$uri?k=get");

    $t->step($file);

    return map { "$_->{status} " . ($_->{headers}{'x-backend'} // '') }
           (map { $t->finish($_) } @s), @answers;
}

for my $m (sort keys %method) {
    my @plain = answers("/plain/$m/");
    my @shadow = answers("/shadow/$m/");

    if ($m eq 'random') {
        s/ .*// for @plain, @shadow;
    }

    is_deeply(\@shadow, \@plain, "$m: routed as without a shadow");
}

# more retries than the budget would allow

is(scalar(grep {
        $t->post("/shadow/leastkept/?k=$_", $bodies[0], headers =>
                 { 'X-B0' => 'status 503', 'X-B1' => 'status 503' })->{status}
        == 200
    } 1 .. 16), 16, 'no retry is denied');

is($t->post("/$_/dead/", $bodies[0])->{status}, 502, "$_: a failure stays a failure")
    for qw(plain shadow);


# counters

sub counts { return $t->status()->{upstreams}{counted} }

sub logged {
    my ($id) = @_;
    my @f;

    wait_for(sub { @f = $t->access_log() =~ /^$id (.*) (\S+) (\S+) (\S+) (\S+)$/m });

    return { addr => $f[0], peer => $f[1], reason => $f[2], matched => $f[3],
             best => $f[4] };
}

my $body = chat(text(6000, 51));
my $id = 0;
my @log = map { $t->post('/counted?n=c' . ++$id, $body); logged("c$id") } 1 .. 6;

is(join(' ', map { $_->{reason} } @log), join(' ', ('shadow') x 6), 'the reason');
is(join(' ', map { $_->{peer} } @log), join(' ', map { $_->{addr} } @log),
   'the server is the other method\'s');
is(join(' ', map { $_->{matched} > 5000 ? 1 : 0 } @log), '0 0 0 1 1 1',
   'matched bytes are of this server');
is(join(' ', map { $_->{best} > 5000 ? 1 : 0 } @log), '0 1 1 1 1 1',
   'best bytes are of another server');

my $c = counts();

is($c->{shadow_requests}, 6, 'requests');
cmp_ok($c->{shadow_same}, '<=', 4, 'not always the same server');
cmp_ok($c->{shadow_prompt_bytes}, '>', 6 * 6000, 'prompts');
is($c->{shadow_found_bytes}, $log[3]{matched} + $log[4]{matched}
                             + $log[5]{matched}, 'found where they went');
is($c->{shadow_would_bytes}, 5 * $log[3]{matched}, 'would have been found');
is($c->{decisions}{shadow}, 6, 'decisions');
ok(!exists $c->{saved}{round_robin_share}, 'any server: not counted');

# the page: shares since start, also when traffic pauses

SKIP: {
    skip 'node is not installed', 3 unless which('node');

    my $page = "$FindBin::Bin/../ngx_http_kvroute_module/status/page.html";

    Kvroute::write_file("$t->{dir}/status.json", $t->get('/kvroute/json')->{body});
    my $shown = Kvroute::decode(`node $FindBin::Bin/page/draw.js $page counted <$t->{dir}/status.json`);

    is($shown->{shadow}{found}[0],
       sprintf('%.1f%%', 100 * $c->{shadow_found_bytes} / $c->{shadow_prompt_bytes}),
       'the page shows what was found');
    like($shown->{shadow}{found}[1], qr/^since start; \S+ in the last \d+ s/,
         'since the start, and recently');
    unlike("@{$shown->{tiles}{'not computed'}}", qr/any server/,
           'no comparison with any server');
}

like($t->get('/kvroute/metrics')->{body},
     qr/^kvroute_shadow_would_bytes_total\{[^}]*upstream="counted"[^}]*\} $c->{shadow_would_bytes}$/m,
     'the same as metrics');

$t->post('/bypassed', $body);
$t->get('/counted');
is(counts()->{shadow_requests}, 6, 'without a prompt there is nothing to compare');
is($t->post('/backed', $body)->{headers}{'x-backend'}, 'B1', 'a backup server');
ok($t->idle(), 'the counters are back at zero');


# aborts, retries, reloads and kills leave no counts, and nothing wrong in the
# index

my $lost = chat(text(6000, 52));

sub all { return headers => { map { ("X-B$_" => $_[0]) } 0 .. 2 } }

{
    my $s = $t->start('POST /counted?n=gone', $lost, all('stall'));
    ok(wait_for(sub { ($t->load())[0] == 1 }), 'the request is counted');
    close $s;
    ok($t->idle(), 'an abort leaves no count');
}

$t->post('/counted?n=r', $lost, all('close'));
ok($t->idle(), 'retries leave no count');
is($t->post('/counted?n=cold', $lost)->{status}, 200, 'the prompt comes again');
is(logged('cold')->{best}, 0, 'unanswered prompts are not learned');

{
    my @s = map { $t->start('POST /counted', $body, all('wait reload')) } 1 .. 3;
    wait_for(sub { ($t->load())[0] == 3 });
    $t->reload();
    is(($t->load())[0], 3, 'counted over a reload');
    $t->step('reload');
    is(scalar(grep { $t->finish($_)->{status} == 200 } @s), 3, 'and served');
    ok($t->idle(), 'then no count is left');
}

$t->post('/counted?n=after', $body);
cmp_ok(logged('after')->{matched}, '>', 5000, 'learned prompts stay');

{
    my @s = map { $t->start('POST /counted', $body, all('stall')) } 1, 2;
    wait_for(sub { ($t->load())[0] == 2 });
    $t->kill_worker($_) for $t->active_workers();
    wait_for(sub { $t->active_workers() == 1 });
    ok($t->idle(), 'a killed worker leaves no count');
    is(($t->load())[2], 2, 'nginx\'s own counts remain, as without the module');
}

$t->done();
