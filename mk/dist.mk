# What leaves the house: the tarball, Debian's packages, a release. ABI: docs/abi.md. Releasing: docs/releasing.md.

DIST_NAME := libtws-$(VERSION)
DIST := $(BUILD)/dist/$(DIST_NAME).tar.gz
# Of the gates that a release runs, and where; tests of `make release` put something short in their place.
RELEASE_GATES ?= .ci/run

.PHONY: dist deb check-abi accept-abi release

##@ Install
## dist: build/dist/libtws-VERSION.tar.gz of the last commit; the same bytes whenever and wherever it is made
dist:
	@scripts/dist.sh '$(DIST_NAME)' '$(BUILD)/dist'

## deb: Debian packages of the last commit in build/deb, judged by lintian; installs what that needs
deb: dist
	@scripts/deps.sh --quiet package
	@JOBS='$(JOBS)' packaging/debian/build.sh '$(DIST)' '$(VERSION)' '$(BUILD)/deb'

## check-abi: the libraries' binary interface against the last release's
check-abi:
	@scripts/deps.sh --quiet package
	@scripts/abi.sh check $(B)/abi
	@$(PYTHON) tests/abi/kept_test.py

## accept-abi: take the present interface as the one to keep; docs/abi.md says when
accept-abi:
	@scripts/deps.sh --quiet package
	@scripts/abi.sh accept $(B)/abi

## release: tag what is committed as VERSION, after all gates; docs/releasing.md
release:
	@RELEASE_GATES='$(RELEASE_GATES)' scripts/release.sh '$(VERSION)'
