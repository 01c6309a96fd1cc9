"""The settings of the scripts that serve and convert models.

predict     which model answers, and where texts come from
conversion  weights from one format to another
hub         TF-Hub modules
"""
