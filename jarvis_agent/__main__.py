"""The command `jarvis` by another name: python -m jarvis_agent "What is in cat.jpg?" """

from jarvis_agent.interfaces.cli.app import main

if __name__ == "__main__":
    main()
