# ngx_http_kvroute_module: "make" lists what there is to make.

DEBIAN_SRC := /usr/share/nginx/src
DEBIAN_BIN := $(firstword $(wildcard /usr/sbin/nginx) nginx)

BUILD      ?= build
NGINX_SRC  ?= $(DEBIAN_SRC)
NGINX_BIN  ?= $(DEBIAN_BIN)
MODULE     ?= $(BUILD)/ngx_http_kvroute_module.so

ROOT       := $(CURDIR)
BUILD_DIR  := $(abspath $(BUILD))
SUDO       := $(shell test "$$(id -u)" = 0 || echo sudo)
NPROC      := $(shell nproc 2>/dev/null || echo 2)

CC_OPT     := -g -O2 -Wall -Wextra -Wno-unused-parameter -Werror \
              -fstack-protector-strong -D_FORTIFY_SOURCE=2

# what the product, its demo and its tests need, all of it from Debian

DEPS       := gcc libc6-dev nginx nginx-dev libxxhash-dev libcjson-dev \
              libhiredis-dev check pkg-config libevent-dev libzmq3-dev perl \
              python3 curl dpkg-dev patch

# and what tests look at documentation and examples with; redis-tools has a
# server as well (t/lib/Kvroute/Store.pm)

TEST_DEPS  := aspell aspell-en redis-tools yamllint

DEB_DIR    := $(BUILD)/deb$(SUITE:%=/%)

# what benches are told of where things are

BENCH_ENV  = MODULE="$(abspath $(MODULE))" NGINX_BIN="$(NGINX_BIN)" \
             BUILD="$(BUILD_DIR)"

CORE       := $(wildcard ngx_http_kvroute*_module/core/*/*.[chi]*)
PAGE       := $(wildcard ngx_http_kvroute_module/status/page*) \
              ngx_http_kvroute_module/status/embed docs/operations.md
GLUE       := $(wildcard ngx_http_kvroute*_module/*.[ch] \
              ngx_http_kvroute*_module/*/*.[ch])


# what those want who do not work on the module

USE := demo deps build install uninstall deb engine

.PHONY: help
help:           ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1	\2/p' $(MAKEFILE_LIST) \
		| awk -F '\t' -v use=" $(USE) " \
			'{ line = sprintf("  %-18s %s\n", $$1, $$2); \
			   if (index(use, " " $$1 " ")) mine = mine line; \
			   else rest = rest line } \
			 END { printf "to use it:\n%sto work on it:\n%s", mine, rest }'
	@echo "variables: NGINX_SRC= NGINX_BIN= BUILD= SUITE="


.PHONY: deps test-deps
deps:           ## installs what is missing, with apt (sudo unless root)
test-deps: DEPS += $(TEST_DEPS)

deps test-deps:
	@missing=; for p in $(DEPS); do \
		dpkg-query -W -f '$${db:Status-Status}' $$p 2>/dev/null \
			| grep -qx installed || missing="$$missing $$p"; \
	done; \
	if [ -n "$$missing" ]; then \
		echo "installing:$$missing"; \
		mkdir -p $(BUILD); \
		export DEBIAN_FRONTEND=noninteractive; \
		{ $(SUDO) apt-get update -qq \
		  && $(SUDO) apt-get install -y -qq --no-install-recommends \
			$$missing; } >$(BUILD)/deps.log 2>&1 \
		|| { cat $(BUILD)/deps.log; exit 1; }; \
	fi


.PHONY: build
build: $(MODULE)  ## builds the module against the nginx in NGINX_SRC

$(MODULE): $(BUILD)/nginx/Makefile $(CORE) $(GLUE) $(PAGE)
	@$(MAKE) -s $(if $(findstring -j,$(MAKEFLAGS)),,-j$(NPROC)) \
		-C $(NGINX_SRC) -f $(BUILD_DIR)/nginx/Makefile modules
	@for m in $(BUILD)/nginx/ngx_http_kvroute*_module.so; do \
		install $$m $(@D)/; done
	@echo "built $@ for $$($(NGINX_BIN) -v 2>&1)"

# Debian's nginx-dev says in conf_flags how its nginx was configured; where that
# is not, what changes the module is told by nginx itself; a git checkout has
# configure in auto/.  $(1) is where to build, $(2) the module

define configure
	@test -f $(NGINX_SRC)/configure || test -f $(NGINX_SRC)/auto/configure \
		|| { echo "NGINX_SRC=$(NGINX_SRC) is no source of nginx:" \
			"it has no configure"; exit 1; }
	@mkdir -p $(1)
	@cd $(NGINX_SRC) && bash -ec '\
		NGX_CONF_FLAGS=(--with-compat); \
		ssl=--with-http_ssl_module; \
		case "$$($(NGINX_BIN) -V 2>&1)" in \
			*$$ssl*) NGX_CONF_FLAGS+=($$ssl) ;; \
		esac; \
		test ! -f conf_flags || . ./conf_flags; \
		configure=./configure; \
		test -f $$configure || configure=auto/configure; \
		sh $$configure "$${NGX_CONF_FLAGS[@]}" --with-cc-opt="$(CC_OPT)" \
			--builddir=$(1) --add-dynamic-module=$(2) \
		>$(1).log 2>&1 || { tail -n 20 $(1).log; exit 1; }'
endef

# config finds the sources by itself: asked again when one comes or goes

$(BUILD)/sources: FORCE
	@mkdir -p $(@D)
	@echo $(sort $(CORE) $(GLUE)) | cmp -s - $@ \
		|| echo $(sort $(CORE) $(GLUE)) > $@

$(BUILD)/nginx/Makefile: config config.make Makefile $(BUILD)/sources \
		$(wildcard ngx_http_kvroute*_module/config) \
		$(BUILD)/nginx.source
	$(call configure,$(BUILD_DIR)/nginx,$(ROOT))

# what was built for another nginx is of no use for this one

$(BUILD)/nginx.source: FORCE
	@mkdir -p $(BUILD)
	@{ echo $(NGINX_SRC); cat $(NGINX_SRC)/src/core/nginx.h; } >$@.new \
		2>/dev/null; \
	cmp -s $@.new $@ && rm $@.new \
		|| { rm -rf $(BUILD)/nginx $(BUILD)/bench/wire/control; mv $@.new $@; }

.PHONY: FORCE
FORCE:


.PHONY: house
house: build    ## rooms, floors, and where their rules are broken (t/house.t)
	@mkdir -p $(BUILD)
	@perl t/house.t report $(BUILD)/house.json


.PHONY: lines
lines:          ## code lines by module and room: build/lines.json
	@mkdir -p $(BUILD)
	@t/lines $(BUILD)/lines.json


.PHONY: directives
directives:     ## counts and lists directives and parameters
	@t/directives list


.PHONY: kubernetes
kubernetes:     ## examples/kubernetes/nginx.yaml, of the chart's defaults
	@{ printf '%s\n' '---' \
		"# nginx with the module as a Deployment of its own, in front of engines" \
		"# behind a headless service: packaging/chart with its defaults, written by" \
		"# \"make kubernetes\".  docs/kubernetes.md says why it is as it is."; \
	t/chart llm-router ml | sed 1d; } >examples/kubernetes/nginx.yaml


.PHONY: unit
unit: unit-build ## builds and runs the unit tests
	@t/run unit


# not by installing the package, which would run a server

.PHONY: promtool
promtool: $(BUILD)/promtool  ## what checks metrics and alert rules (19 MB)

$(BUILD)/promtool:
	@mkdir -p $(BUILD)/prometheus
	@cd $(BUILD)/prometheus && rm -f *.deb \
	&& { apt-get download -qq prometheus 2>/dev/null \
	     || { $(SUDO) apt-get update -qq \
	          && apt-get download -qq prometheus 2>/dev/null; }; } \
	&& dpkg-deb --fsys-tarfile prometheus_*.deb \
	   | tar -x --strip-components=3 -C .. ./usr/bin/promtool \
	&& rm -r ../prometheus && touch ../promtool


.PHONY: test
test: test-deps ## all tests: unit, integration, sanitizers (under 10 minutes)
	@$(MAKE) -s promtool || echo "metrics are not checked by promtool"
	@$(MAKE) -s -j$(NPROC) build engine engine-tests unit-build \
		fuzz-build step-objects $(BUILD)/bench/sim/rivals_test
	@$(MAKE) -s -j$(NPROC) SAN=1 unit-build
	@t/sanitize.sh $(BUILD)/sanitize
	@NGINX_BIN="$(NGINX_BIN)" KVROUTE_MODULE="$(abspath $(MODULE))" \
		KVROUTE_SKIP="stress docs house hunt page workers examples clients" \
		STRESS_SECONDS=12 \
		t/run unit fuzz prove:1 prove:4 unit-san prove-san:1


# the tests that find most for their time

CHECK := house docs wrong config balancer passthrough body request policies \
         prefix sticky queue status variables

.PHONY: check
check: test-deps ## a quick look before each commit (under 60 s once built)
	@$(MAKE) -s -j$(NPROC) build engine unit-build
	@KVR_TEST_SCALE=20 TESTS="$(CHECK:%=t/%.t)" NGINX_BIN="$(NGINX_BIN)" \
		KVROUTE_MODULE="$(abspath $(MODULE))" t/run unit prove:1


.PHONY: sanitize
sanitize: deps  ## all tests under ASan and UBSan, with Debian's own nginx
	@$(MAKE) -s build engine SAN=1 unit-build
	@t/sanitize.sh $(BUILD)/sanitize
	@KVR_TEST_SCALE=100 t/run unit-san prove-san:1 prove-san:4


.PHONY: matrix
matrix: test-deps ## integration tests against each nginx in use (build/matrix)
	@$(MAKE) -s promtool || echo "metrics are not checked by promtool"
	@$(MAKE) -s build engine NGINX_SRC=$(DEBIAN_SRC) NGINX_BIN=$(DEBIAN_BIN)
	@NGINX_SRC="$(filter-out $(DEBIAN_SRC),$(NGINX_SRC))" \
		NGINX_BIN="$(if $(filter-out $(DEBIAN_SRC),$(NGINX_SRC)),$(filter-out $(DEBIAN_BIN),$(NGINX_BIN)))" \
		t/matrix/run


.PHONY: musl
musl: DEPS += musl-tools autoconf automake libtool
musl: test-deps ## unit and integration tests with musl, as on Alpine (build/musl)
	@$(MAKE) -s engine
	@NGINX_SRC="$(filter-out $(DEBIAN_SRC),$(NGINX_SRC))" \
		t/musl.sh $(BUILD)/musl
	@BUILD=$(BUILD)/musl t/run unit
	@NGINX_BIN="$(BUILD_DIR)/musl/nginx/objs/nginx" \
		KVROUTE_MODULE="$(BUILD_DIR)/musl/nginx/objs/ngx_http_kvroute_module.so" \
		t/run prove:1


.PHONY: test-vllm
test-vllm: DEPS += python3-venv binutils libnuma1 libgomp1 libibverbs1 \
           librdmacm1
test-vllm: deps ## tests with real vLLM on CPUs: fetches 0.7 GB once (15 minutes; TESTS=...)
	@$(MAKE) -s build
	@KVROUTE_MODULE="$(abspath $(MODULE))" NGINX_BIN="$(NGINX_BIN)" t/vllm/run


.PHONY: test-sglang
test-sglang: DEPS += python3-venv binutils libnuma1 libgomp1
test-sglang: deps ## tests with real SGLang on CPUs (15 minutes, 5 GB with vLLM; TESTS=...)
	@$(MAKE) -s build
	@KVROUTE_MODULE="$(abspath $(MODULE))" NGINX_BIN="$(NGINX_BIN)" t/vllm/run sglang


.PHONY: test-foreign
test-foreign: DEPS += python3-venv g++ cmake ninja-build
test-foreign: deps ## tests with an engine that kvroute does not know, llama-cpp-python: compiles it once (8 minutes of processor, 0.2 GB)
	@$(MAKE) -s build
	@KVROUTE_MODULE="$(abspath $(MODULE))" NGINX_BIN="$(NGINX_BIN)" t/vllm/run foreign


.PHONY: test-objects
test-objects: DEPS += etcd-server openssl yamllint
test-objects: deps ## Kubernetes objects at a real API server (builds it once: 8 minutes of processor, 3.3 GB; needs Go; CRDS=...)
	@t/objects/build $(BUILD_DIR)/objects
	@BUILD="$(BUILD_DIR)" prove t/objects/objects.t


.PHONY: test-llmd
test-llmd: deps ## connector=header with llm-d's sidecar: fetches 0.5 GB once, needs Go (SIMULATOR=...)
	@$(MAKE) -s build engine
	@KVROUTE_MODULE="$(abspath $(MODULE))" NGINX_BIN="$(NGINX_BIN)" t/legs/llmd


.PHONY: record-legs
record-legs:    ## records again what other routers send to two servers (t/legs/*.json)
	@python3 -m venv $(BUILD)/routers
	@$(BUILD)/routers/bin/pip install -q vllm-router==0.1.17 sglang-router==0.3.2
	@for name in vllm-nixl vllm-mooncake sglang; do \
		$(BUILD)/routers/bin/python t/legs/record.py $$name \
			t/legs/$$name.json || exit 1; done
	@echo "git diff t/legs: random numbers only, if all is as it was"


.PHONY: demo
demo: deps      ## real engines behind nginx: the policies compared (README)
	@$(MAKE) -s build
	@MODULE="$(abspath $(MODULE))" NGINX_BIN="$(NGINX_BIN)" \
		python3 examples/demo/demo.py


.PHONY: demo-hosts
demo-hosts: DEPS += redis-server
demo-hosts: deps ## one nginx and three before real engines: apart, homes, sharing (2 minutes)
	@$(MAKE) -s build
	@MODULE="$(abspath $(MODULE))" NGINX_BIN="$(NGINX_BIN)" \
		python3 examples/demo/hosts.py


.PHONY: bench-signals
bench-signals: deps ## what signals bring and cost (7 minutes; PARTS=...)
	@$(MAKE) -s build engine sim
	@$(BENCH_ENV) python3 bench/signals/signals.py


.PHONY: deb
deb: DEPS := build-essential dpkg-dev lintian mmdebstrap
deb: deps       ## the Debian package, checked by lintian (SUITE=trixie ...)
	@packaging/build-deb $(DEB_DIR) $(SUITE)


.PHONY: deb-test
deb-test: deb   ## installs, upgrades, removes it in a fresh Debian (root)
	@packaging/test-deb $$(ls $(DEB_DIR)/libnginx-mod-http-kvroute_*.deb) \
		$(DEB_DIR)/chroot $(SUITE) || test $$? = 77


.PHONY: first-steps
first-steps: DEPS := mmdebstrap
first-steps: deps ## docs/first-steps.md in a fresh Debian: seconds to the first routed request (root)
	@mkdir -p $(BUILD)
	@packaging/first-steps $(BUILD)/first-steps $(SUITE) || test $$? = 77


.PHONY: bench-events
bench-events: deps ## what KV events bring and cost (10 minutes; PARTS=...)
	@$(MAKE) -s build engine sim bench-tools
	@$(BENCH_ENV) python3 bench/events/events.py


.PHONY: bench-sick
bench-sick: deps ## one of eight engines is sick, in each way there is (10 minutes; KINDS=...)
	@$(MAKE) -s build engine
	@$(BENCH_ENV) python3 bench/sick/sick.py

.PHONY: bench-unbroken
bench-unbroken: deps ## real engines are killed in the middle of answers, one is emptied, one stalls (30 minutes; KILLS=...)
	@$(MAKE) -s build engine
	@KINDS="first token" $(BENCH_ENV) python3 bench/sick/sick.py
	@$(BENCH_ENV) python3 bench/unbroken/move.py
	@$(BENCH_ENV) python3 bench/unbroken/unbroken.py


.PHONY: bench-budget
bench-budget: deps ## rates of tenants, cached prompts, killed workers, cost (3 minutes; PARTS=...)
	@$(MAKE) -s build engine
	@$(BENCH_ENV) python3 bench/budget/budget.py


.PHONY: bench-hot
bench-hot: deps ## hot beginnings: bursts, a shared system prompt, agents (14 minutes; PARTS=...)
	@$(MAKE) -s build engine
	@$(BENCH_ENV) python3 bench/hot/hot.py


.PHONY: bench-ten
bench-ten: deps ## the same ten requests under each policy (docs/policies.md)
	@$(MAKE) -s build
	@NGINX_BIN="$(NGINX_BIN)" KVROUTE_MODULE="$(abspath $(MODULE))" \
		perl bench/ten.pl


.PHONY: bench-ranks
bench-ranks: deps ## data-parallel ranks: told apart, chosen by engines, or alone
	@$(MAKE) -s build engine
	@NGINX_BIN="$(NGINX_BIN)" KVROUTE_MODULE="$(abspath $(MODULE))" \
		perl bench/ranks.pl


.PHONY: bench-status
bench-status: deps ## what the status and probes cost with 64 peers, and 512
	@$(MAKE) -s build engine
	@$(BENCH_ENV) python3 bench/status.py


.PHONY: screenshots
screenshots: DEPS += $(if $(shell command -v chromium),,chromium) $(if $(shell command -v npm),,npm)
screenshots: deps ## docs/img/page.png, and the page in incidents (5 minutes; SCENES=...)
	@$(MAKE) -s build engine
	@mkdir -p $(BUILD)/t/page && cp t/page/package.json $(BUILD)/t/page/ \
	&& cd $(BUILD)/t/page && { test -d node_modules/playwright-core \
		|| npm install --no-audit --no-fund --no-package-lock \
			--ignore-scripts >npm.log 2>&1 || { cat npm.log; exit 1; }; }
	@$(BENCH_ENV) NODE_PATH="$(BUILD_DIR)/t/page/node_modules" \
		python3 bench/page/screenshots.py


.PHONY: install
install: build  ## copies the modules to where nginx looks for modules
	@dir=$$($(NGINX_BIN) -V 2>&1 \
		| sed -n 's/.*--modules-path=\([^ ]*\).*/\1/p'); \
	test -n "$$dir" || { echo "nginx has no modules path"; exit 1; }; \
	$(if $(DESTDIR),,$(SUDO)) install -D -m 644 -t "$(DESTDIR)$$dir" \
		$(MODULE) $(filter-out $(MODULE),\
		$(wildcard $(dir $(MODULE))ngx_http_kvroute_*_module.so)) \
	&& echo "load_module modules/ngx_http_kvroute_module.so;"


.PHONY: uninstall
uninstall:      ## removes them from there
	@dir=$$($(NGINX_BIN) -V 2>&1 \
		| sed -n 's/.*--modules-path=\([^ ]*\).*/\1/p'); \
	test -n "$$dir" || { echo "nginx has no modules path"; exit 1; }; \
	$(SUDO) rm -f "$(DESTDIR)$$dir"/ngx_http_kvroute_module.so \
		"$(DESTDIR)$$dir"/ngx_http_kvroute_*_module.so


include core.mk
include t/engine/Makefile.inc
include t/unit/Makefile.inc
include t/fuzz/Makefile.inc
include t/step/Makefile.inc
include t/chaos/Makefile.inc
include bench/micro/Makefile.inc
include bench/wire/Makefile.inc
include bench/soak/Makefile.inc
include bench/sim/Makefile.inc
include bench/hosts/Makefile.inc
include bench/pd/Makefile.inc
include bench/queue/Makefile.inc
include bench/peers/Makefile.inc


.PHONY: churn
churn: build engine  ## 300 servers by "resolve", a fifth replaced each minute (MINUTES=10)
	@mkdir -p $(BUILD)/bench
	@KVROUTE_JSON="$(abspath $(BUILD))/bench/churn.json" BUILD="$(abspath $(BUILD))" KVROUTE_MODULE="$(abspath $(MODULE))" \
		NGINX_BIN="$(NGINX_BIN)" KVROUTE_CHURN=$(or $(MINUTES),10) \
		prove -v t/churn.t


.PHONY: engine-tests
engine-tests: $(ENGINE_BUILD)/replica_test


.PHONY: clean
clean:          ## removes all that was built
	rm -rf $(BUILD)
