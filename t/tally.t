#!/usr/bin/perl

# Counters and usage by model and tenant: which names have their own row, which
# share a row, and how a tenant is displayed.

use lib 't/lib';
use Kvroute;

my $t = Kvroute->new();

$t->engines(2, '--hardware', 'none', '--model', 'm',
            '--enable-prompt-tokens-details');

$t->upstream('llm', 'E0 E1 max_fails=0');
$t->upstream('queued', 'kvroute_queue max=1 timeout=1h;',
             'E0 max_conns=1 max_fails=0');
$t->upstream('beside', 'least_conn;', 'kvroute_shadow zone=z;', 'E0 E1');

$t->conf(<<'EOC')->run();
    log_format kv '$arg_n $status $kvroute_tenant $kvroute_prompt_tokens '
                  '$kvroute_cached_tokens $kvroute_computed_tokens '
                  '$kvroute_completion_tokens';
    access_log %%DIR%%/access.log kv;

    client_body_buffer_size 1m;
    kvroute_request tenant=$http_x_key name=$http_x_name;
    location /v1/ { proxy_pass http://llm; }
    location /queued/ { proxy_pass http://queued/; }
    location /beside/ { proxy_pass http://beside/; }
    location /api/ { kvroute_api write=on; }
EOC

my $text = text(4000, 1);
my $n = 0;

sub ask {
    my ($path, $model, %header) = @_;

    $n++;

    return $t->post("$path?n=$n", chat($text, model => $model),
                    headers => \%header);
}

# the counters of an upstream, by name; the row without a name is ""

sub counted {
    my ($upstream, $what) = @_;

    return { map { ($_->{name} // '') => $_ }
             @{$t->status()->{upstreams}{$upstream}{$what}} };
}

my $chat = '/v1/chat/completions';

is(ask($chat, 'm', 'X-Key' => 'secret of acme', 'X-Name' => 'acme')->{status},
   200, 'served');
is(ask($chat, 'm', 'X-Key' => 'secret of beta')->{status}, 200, 'another tenant');
is(ask($chat, 'm')->{status}, 200, 'no tenant');
is(ask($chat, 'none such', 'X-Key' => 'stranger', 'X-Name' => 'x')->{status},
   404, 'an unknown model');
is(ask($chat, 'm', 'X-Key' => 'secret of acme', 'X-Name' => 'acme',
       'X-Engine-Fault' => 'status=500')->{status}, 500, 'a request fails');

# the engine counts a request once its answer has ended

sub all {
    my ($counts) = @_;
    my $sum = 0;

    $sum += $_->{requests} for values %$counts;

    return $sum;
}

wait_for(sub { all(counted('llm', 'models')) == 5 });

my $models = counted('llm', 'models');
my $tenants = counted('llm', 'tenants');

is(join(' ', sort keys %$models), ' m', 'a served model has a row of its own');
is($models->{m}{requests}, 4, 'requests of the model');
is($models->{m}{errors}, 1, 'errors of the model');
cmp_ok($models->{m}{prompt_bytes}, '>', 4 * 4000, 'prompt bytes of the model');
cmp_ok($models->{m}{matched_bytes}, '>', 2 * 4000 - 600, 'matched bytes of the model');
is($models->{''}{requests}, 1, 'requests of unknown models');
ok($models->{''}{other}, 'are in the row "other"');

my ($digits) = grep { /^[0-9a-f]{8}$/ } keys %$tenants;

is(join(' ', sort keys %$tenants), join(' ', sort '', 'acme', $digits // '?'),
   'tenants: rows by the given name, or by digits of a hash');
is($tenants->{acme}{requests}, 2, 'requests of the tenant');
is($tenants->{acme}{errors}, 1, 'errors of the tenant');
is($tenants->{''}{requests}, 1, 'a tenant that was never served has no row');

unlike($t->get('/kvroute/json')->{body}, qr/secret of/,
       'the key of a tenant is not shown');

my $log = $t->access_log();

like($log, qr/^1 200 acme \d/m, 'the log has the name of the row');
like($log, qr/^2 200 \Q$digits\E \d/m, 'the log has the digits of the row');
like($log, qr/^3 200 - \d/m, 'the log has no name without a tenant');

# usage: the sums of the log, in all formats

my @type = qw(prompt cached computed completion);
my $metrics = $t->get('/kvroute/metrics')->{body};

for my $name ('acme', $digits) {
    my %sum = map { $_ => 0 } @type;

    while ($log =~ /^\d+ \d+ \Q$name\E (\d+) (\d+) (\d+) (\d+)$/mg) {
        my @tokens = ($1, $2, $3, $4);

        $sum{$type[$_]} += $tokens[$_] for 0 .. 3;
        is($1, $2 + $3, "$name: cached and computed are the prompt");
    }

    cmp_ok($sum{prompt}, '>', 900, "$name: tokens");

    is($tenants->{$name}{"${_}_tokens"}, $sum{$_}, "$name: $_ in JSON") for @type;

    is(join(' ', map { $metrics =~ /^kvroute_tenant_tokens_total\{upstream="llm",
                                    tenant="\Q$name\E",type="$_"\}\ (\d+)$/mx }
                     @type[1 .. 3]),
       join(' ', @sum{@type[1 .. 3]}), "$name: in metrics");
}

cmp_ok($tenants->{$digits}{cached_tokens}, '>', 900, 'a tenant whose prompt was cached');
is($models->{m}{computed_tokens} + $models->{m}{cached_tokens},
   $models->{m}{prompt_tokens}, 'tokens of the model');

like($metrics, qr/^kvroute_model_requests_total\{upstream="llm",model=""\} 1$/m,
     'requests without a name');

my ($receipt) = grep { $_->{cached_tokens} } @{$t->status()->{receipts}};

is($receipt->{prompt_tokens}, $models->{m}{prompt_tokens} / 3, 'tokens in receipts');

# with another method, and after a reload

is(ask("/beside$chat", 'm', 'X-Key' => 'k', 'X-Name' => 'gamma')->{status}, 200,
   'with least_conn');
ok(wait_for(sub { (counted('beside', 'tenants')->{gamma}{requests} // 0) == 1 }),
   'counted with least_conn');

$t->reload();

is(counted('llm', 'tenants')->{acme}{requests}, 2, 'a reload keeps the requests');
is(counted('llm', 'tenants')->{acme}{prompt_tokens}, $tenants->{acme}{prompt_tokens},
   'a reload keeps the tokens');

# requests that the queue refuses: one runs, one waits

my @held = map { $t->start("POST /queued$chat", chat($text, max_tokens => 8),
                           headers => { 'X-Key' => 'q', 'X-Name' => 'delta',
                                        'X-Engine-Fault' => 'slow=200',
                                        'X-Engine-Output-Tokens' => 8 }) } 1 .. 2;

wait_for(sub { $t->status()->{upstreams}{queued}{queue}{size} == 1 });

is(ask("/queued$chat", 'm', 'X-Key' => 'q', 'X-Name' => 'delta')->{status}, 429,
   'refused');

is($t->finish($_)->{status}, 200, 'the waiting requests are served') for @held;

wait_for(sub { (counted('queued', 'tenants')->{delta}{requests} // 0) == 2 });

my $sum = 0;
$sum += $_->{rejects} for values %{counted('queued', 'tenants')};

is($sum, 1, 'one request was refused');

cmp_ok(counted('queued', 'tenants')->{delta}{queue_time}, '>', 0, 'time in the queue');
is(counted('queued', 'tenants')->{delta}{requests}, 2,
   'a refused request is not counted as served');

# more tenants than the table has rows: the series are bounded, and the sum is complete

my $count = all(counted('llm', 'tenants'));

ask($chat, 'm', 'X-Key' => "key $_", 'X-Name' => "tenant $_") for 1 .. 40;

my %of;

ok(wait_for(sub {
    %of = $t->get('/kvroute/metrics')->{body}
        =~ /^kvroute_tenant_requests_total\{upstream="llm",tenant="(.*)"\} (\d+)$/mg;
    return all(counted('llm', 'tenants')) == $count + 40;
}), 'all requests are counted');
is(join(' ', sort grep { /^tenant/ } keys %of),
   join(' ', sort grep { /^tenant/ } keys %{counted('llm', 'tenants')}),
       'metrics and JSON have the same tenants');
cmp_ok(scalar keys %of, '<=', 33, 'at most 32 tenants and one row for the rest');
cmp_ok($of{''}, '>', 8, 'the row of the rest has requests');

for (1 .. 2) {
    my $pid;

    ok(wait_for(sub { ($pid) = $t->workers(); $pid }), 'there is a worker');
    $t->kill_worker($pid);
}

is(all(counted('llm', 'tenants')), $count + 40,
   'a killed worker does not change the counters');

$t->done();
