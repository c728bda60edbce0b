# core/ without nginx: an archive for each set of flags, from which who links
# it takes what it needs.  What tests and benches add is compiled alike.
# CORE_INCLUDE= is where another C library has its headers.
#
#     $(CORE_LIB)        by $(CC), with $(CORE_CFLAGS): tests, benches
#     $(CORE_SAN_LIB)    by $(CC), with $(CORE_SAN_CFLAGS): under sanitizers
#     $(CORE_FUZZ_LIB)   by $(FUZZ_CLANG): as that, counted for libFuzzer

ifndef CORE_DIRS

BUILD           ?= build
FUZZ_CLANG      ?= $(firstword $(foreach c,clang clang-19 clang-18 clang-17 \
                   clang-16 clang-15 clang-14,$(shell command -v $(c))))

CORE_DIRS       := $(wildcard ngx_http_kvroute*_module/core)
CORE_SRCS       := $(foreach d,$(CORE_DIRS),\
                   $(patsubst $(d)/%,%,$(wildcard $(d)/*/*.c)))

CORE_WARN       := -std=gnu11 -g -Wall -Wextra -Wno-unused-parameter \
                   -Werror $(CORE_DIRS:%/core=-I%) $(CORE_INCLUDE)
CORE_CFLAGS     := $(CORE_WARN) -O2
CORE_SAN_CFLAGS := $(CORE_WARN) -O1 -fno-omit-frame-pointer \
                   -fno-sanitize-recover=all -fsanitize=address,undefined

CORE_LIB        := $(BUILD)/core/plain/libcore.a
CORE_SAN_LIB    := $(BUILD)/core/san/libcore.a
CORE_FUZZ_LIB   := $(BUILD)/core/fuzz/libcore.a


# sources are named by their rooms, which are in the folders of several modules

vpath %.c $(CORE_DIRS)


# compiles and notes the headers; the source itself is left out, as it may move

define core_compile
	@mkdir -p $(@D)
	$(1) -MMD -MP -c -o $@ $<
	@sed -i 's| $<||' $(@:.o=.d)
endef


# of an archive, a compiler and its flags

define core_lib
$(1): $(CORE_SRCS:%.c=$(dir $(1))%.o)
	@rm -f $$@
	@$(AR) rcs $$@ $$^

$(dir $(1))%.o: %.c
	$$(call core_compile,$(2) $(3))

-include $(CORE_SRCS:%.c=$(dir $(1))%.d)

endef

$(eval $(call core_lib,$(CORE_LIB),$(CC),$(CORE_CFLAGS)))
$(eval $(call core_lib,$(CORE_SAN_LIB),$(CC),$(CORE_SAN_CFLAGS)))
$(eval $(call core_lib,$(CORE_FUZZ_LIB),$(FUZZ_CLANG),\
	$(CORE_SAN_CFLAGS) -fsanitize=fuzzer-no-link))

endif
