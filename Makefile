# Everything builds its own environment under .venv; Python >= 3.11 and make are all that is needed.
PYTHON ?= python3

.PHONY: demo test test-all quick oracle oracle-check bench lint clean

demo:            ## train the digits classifier and print what tracing took
	@$(PYTHON) tools/dev.py demo

test:            ## all tests, on the newest supported Python that is installed
	@$(PYTHON) tools/dev.py test

test-all:        ## all tests on each supported Python that is installed, and a tenth of the recorded answers against JAX
	@$(PYTHON) tools/dev.py test --all

quick:           ## the tests that need no engine, on one Python
	@$(PYTHON) tools/dev.py test --quick

oracle:          ## record anew what each installed JAX answers to the rows of the tests
	@$(PYTHON) tools/dev.py oracle

oracle-check:    ## whether each installed JAX still answers what is on file
	@$(PYTHON) tools/dev.py oracle --check

bench:           ## speed beside JAX in one run, as ratios
	@$(PYTHON) tools/dev.py bench

lint:
	@$(PYTHON) tools/dev.py lint

clean:
	rm -rf .venv build dist src/*.egg-info
